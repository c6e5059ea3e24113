//! Certificates for tests, in every supported file format.

use p12_keystore::{
    Certificate, EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKey, PrivateKeyChain,
};
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};

/// The password of the PKCS#12 files.
pub(crate) const PASSWORD: &str = "planted-certificate-password";

/// A self-signed certificate with its key.
pub(crate) struct TestCertificate {
    pub(crate) key: KeyPair,
    pub(crate) certificate: rcgen::Certificate,
}

/// Returns a new key of 2048 bits and its certificate.
pub(crate) fn make() -> TestCertificate {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let certificate =
        CertificateParams::new(vec!["pools.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    TestCertificate { key, certificate }
}

impl TestCertificate {
    /// Returns the key and the certificate as PEM.
    pub(crate) fn pem(&self) -> String {
        format!("{}{}", self.key.serialize_pem(), self.certificate.pem())
    }

    /// Returns a PKCS#12 file with current algorithms.
    pub(crate) fn pkcs12(&self) -> Vec<u8> {
        self.encrypted(EncryptionAlgorithm::PbeWithHmacSha256AndAes256, MacAlgorithm::HmacSha256)
    }

    fn encrypted(&self, encryption: EncryptionAlgorithm, mac: MacAlgorithm) -> Vec<u8> {
        let certificate = Certificate::from_der(self.certificate.der()).unwrap();
        let key = PrivateKey::from_der(&self.key.serialize_der()).unwrap();
        let mut store = KeyStore::new();
        let chain = PrivateKeyChain::new("key", key, [certificate]);
        store.add_entry("pools", KeyStoreEntry::PrivateKeyChain(chain));
        let writer = store.writer(PASSWORD).encryption_algorithm(encryption).mac_algorithm(mac);
        writer.encryption_iterations(2_000).mac_iterations(2_000).write().unwrap()
    }

    /// Returns every file format with its password; the last is what Windows and older OpenSSL write.
    pub(crate) fn files(&self) -> Vec<(&'static str, Vec<u8>, Option<&'static str>)> {
        let certificate_first = format!("{}{}", self.certificate.pem(), self.key.serialize_pem());
        let (other, elliptic) = (make(), KeyPair::generate().unwrap().serialize_pem());
        let keys_of_others = format!("{elliptic}{}{}", other.key.serialize_pem(), self.pem());
        let others = format!("{}{}", other.certificate.pem(), self.pem());
        let old = self.encrypted(EncryptionAlgorithm::PbeWithShaAnd3KeyTripleDesCbc, MacAlgorithm::HmacSha1);
        vec![
            ("PEM", self.pem().into_bytes(), None),
            ("PEM, the certificate first", certificate_first.into_bytes(), None),
            ("PEM behind keys without certificate", keys_of_others.into_bytes(), None),
            ("PEM behind certificates of others", others.into_bytes(), None),
            ("PKCS#12", self.pkcs12(), Some(PASSWORD)),
            ("PKCS#12 of old", old, Some(PASSWORD)),
        ]
    }
}
