//! Certificate authorities of tests, and their certificates.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// Creates an authority with this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Self(CertifiedIssuer::self_signed(params, key()).expect("the authority signs itself"))
    }

    /// Returns the authority's certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for a server on this machine.
    pub fn server(&self) -> Pair {
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// Issues a certificate for a client with this name.
    pub fn client(&self, name: &str) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let own = key();
        let signed = params.signed_by(&own, &self.0).expect("the authority signs");
        Pair { certificate: signed.pem(), key: own.serialize_pem() }
    }
}

/// Writes `ca.crt`, `api.crt` and `api.key` of the API server, `admin.crt` and `admin.key` of a member of
/// `system:masters`, and `sa.key` and `sa.pub` for service account tokens into the folder.
pub fn write(folder: &Path) {
    let put =
        |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("the folder can be written");
    let ca = Authority::new("test cluster");
    put("ca.crt", &ca.pem());

    let mut api = CertificateParams::default();
    api.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    api.subject_alt_names = vec![
        SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        SanType::IpAddress(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1))),
    ];
    api.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let mut admin = CertificateParams::default();
    admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
    admin.distinguished_name.push(DnType::CommonName, "admin");
    admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    for (name, params) in [("api", api), ("admin", admin)] {
        let signed = ca.sign(&params);
        put(&format!("{name}.crt"), &signed.certificate);
        put(&format!("{name}.key"), &signed.key);
    }

    let accounts = key();
    put("sa.key", &accounts.serialize_pem());
    put("sa.pub", &accounts.public_key_pem());
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the random source works")
}
