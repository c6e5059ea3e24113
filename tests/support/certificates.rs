//! A certificate authority of one test cluster, and what it signs.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// Writes `ca.crt`, `api.crt` and `api.key` of the API server, `admin.crt` and `admin.key` of a member of
/// `system:masters`, and `sa.key` and `sa.pub` for service account tokens into the folder.
pub fn write(folder: &Path) {
    let put =
        |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("the folder can be written");
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "test cluster");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca = CertifiedIssuer::self_signed(ca, key()).expect("the authority signs itself");
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
        let own = key();
        let signed = params.signed_by(&own, &ca).expect("the authority signs");
        put(&format!("{name}.crt"), &signed.pem());
        put(&format!("{name}.key"), &own.serialize_pem());
    }

    let accounts = key();
    put("sa.key", &accounts.serialize_pem());
    put("sa.pub", &accounts.public_key_pem());
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the random source works")
}
