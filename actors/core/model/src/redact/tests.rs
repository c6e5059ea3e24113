//! Removed and kept texts, in tables and for arbitrary text.

use proptest::prelude::*;

use super::*;

const JWT: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl-_x";
const BOOTSTRAP: &str = "abcdef.0123456789abcdef";

#[test]
fn c1_only_tokens_and_queries_are_removed() {
    let rows = [
        (format!("a {JWT} b"), "a # b"),
        (format!("Bearer={JWT}"), "Bearer=#"),
        ("https://a/b?sig=1&x=2 and".to_owned(), "https://a/b?# and"),
        ("(\"https://a?sv=1\", http://b?c)".to_owned(), "(\"https://a?#\", http://b?#)"),
        ("https://user:word@host:1/path".to_owned(), "https://#@host:1/path"),
        (format!("the token {BOOTSTRAP}."), "the token #."),
        ("GET / Authorization: Bearer x\r\nAccept: */*".to_owned(), "GET / Authorization: #\r\nAccept: */*"),
        ("got 'Bearer opaque-1', refused".to_owned(), "got 'Bearer #', refused"),
        ("got bearer%20opaque and".to_owned(), "got bearer%20# and"),
        ("Basic dTpw, and".to_owned(), "Basic #, and"),
        (
            "map[Accept:[a] Authorization:[Digest u p] B:[b]]".to_owned(),
            "map[Accept:[a] Authorization:[#] B:[b]]",
        ),
        (r#"{"authorization": "Digest x", "b": 1}"#.to_owned(), r##"{"authorization": "#", "b": 1}"##),
        (r#"{"authorization":["Digest x"],"b":1}"#.to_owned(), r##"{"authorization":[#],"b":1}"##),
        (r#"{\"token\":\"x\",\"b\":1}"#.to_owned(), r##"{\"token\":\"#\",\"b\":1}"##),
        (r#"{"password":"a\"b","b":1}"#.to_owned(), r##"{"password":"#","b":1}"##),
        ("{'secret': 'x', 'b': 1}".to_owned(), "{'secret': '#', 'b': 1}"),
        (r#"{"password": 12, "b": 1}"#.to_owned(), r##"{"password": #, "b": 1}"##),
        ("a=b&client_secret=x%2By&c=d".to_owned(), "a=b&client_secret=#&c=d"),
        ("password: two words\nnext".to_owned(), "password: #\nnext"),
        ("Password=a,b;User=c".to_owned(), "Password=#;User=c"),
        ("token: o-1 next".to_owned(), "token: # next"),
        ("{:authorization => \"Digest x\"}".to_owned(), "{:authorization => \"#\"}"),
        ("client-key-data: LS0tLS1CRUdJTiBSU0E= b".to_owned(), "client-key-data: #"),
        ("a LS0tLS1CRUdJTiBSU0E= b".to_owned(), "a # b"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nM\n-----END RSA PRIVATE KEY----- b".to_owned(), "a # b"),
        ("a -----BEGIN PRIVATE KEY-----\\nM and so on".to_owned(), "a #"),
        ("cookie: a=b; c=d".to_owned(), "cookie: #"),
        ("\"Authorization\": Digest username=x, response=y\nnext".to_owned(), "\"Authorization\": #\nnext"),
        (r#"{"authorization": null, "b": 1}"#.to_owned(), r##"{"authorization": #, "b": 1}"##),
        (r#"{"token": {"value": "a}b"}, "c": 1}"#.to_owned(), r##"{"token": {#}, "c": 1}"##),
        (
            r#"{"token": {"a": {"b": "c"}, "d": ["e]", "f"]}, "g": 1}"#.to_owned(),
            r##"{"token": {#}, "g": 1}"##,
        ),
        (r#"{\"token\":{\"a\":\"b\\\"}c\"},\"d\":1}"#.to_owned(), r##"{\"token\":{#},\"d\":1}"##),
        ("map[Authorization:[don't tell] B:[b]]".to_owned(), "map[Authorization:[#] B:[b]]"),
        ("password={<redacted> token=x} b".to_owned(), "password={#} b"),
        ("password= Authorization:[Digest x] b".to_owned(), "password= #] b"),
        ("the token 123456.1234567890abcdef".to_owned(), "the token #"),
        ("the token abcdef.17f3b2c4d5e6a7bz".to_owned(), "the token #"),
    ];
    for (text, expected) in rows {
        assert_eq!(redacted(&text), expected.replace('#', REDACTED), "{text}");
    }
}

#[test]
fn c1_ordinary_words_are_kept() {
    for text in [
        "the pool is gone; see https://aka.ms/x.",
        "eyJ is short",
        "really? yes",
        "services is forbidden: User \"system:serviceaccount:kube-system:x\" cannot list resource \"services\" in API \
         group \"authorization.k8s.io\" at the cluster scope",
        "AuthorizationFailed: the client 'x' does not have authorization to perform action",
        "[invalid bearer token, service account token has expired]",
        "WWW-Authenticate: Bearer realm=\"x\"",
        "a Basic SKU, Basic LoadBalancer, basic checks",
        "AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is the client \
         secret value, not the client secret ID, for a secret added to app 'x'.",
        "the token: it has expired",
        "no token: AADSTS700016: Application with identifier x was not found in the directory y",
        "error trying to connect: tcp connect error: Connection refused (os error 111)",
        "events \"web.17f3b2c4d5e6a7b8\" not found",
        "events \"gitlab.17f3b2c4d5e6a7b8\" not found",
        "failed to get secret: NotFound",
        "refresh token: HTTP 503",
        "no token: 401 Unauthorized",
        "password={<redacted>} token=<redacted> Authorization: <redacted>",
        "Secret kube-system/azure-cloud-provider: none",
        "-----BEGIN CERTIFICATE-----\nM\n-----END CERTIFICATE-----",
        "unknown watch event type \"X\"",
    ] {
        assert_eq!(redacted(text), text);
        assert!(matches!(redacted(text), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn c1_known_secrets_are_removed_in_any_encoding() {
    let known = "a b/c\"+d";
    let text = "1 a b/c\"+d 2 a+b%2Fc%22%2Bd 3 a%20b%2Fc%22%2Bd 4 a b/c\\\"+d 5";
    let expected = "1 # 2 # 3 # 4 # 5".replace('#', REDACTED);
    assert_eq!(redacted_of(text, &[known, ""]), expected);
    assert_eq!(redacted_of(text, &[""]), text, "without secrets nothing is removed");
}

#[test]
fn c1_no_part_of_a_secret_is_left_where_a_text_is_cut() {
    let known = "planted-secret";
    for before in (0..60).chain(MAX_TEXT - 40..MAX_TEXT + 5) {
        for filler in ["x", " ", "x "] {
            let filler: String = filler.chars().cycle().take(before).collect();
            // Secrets that cross the end of the searched text, and the end of the line.
            let longest = if before % 2 == 0 { 20 } else { 50 };
            for (said, known) in [
                (format!("{filler} {known} and more"), &[known][..]),
                (format!("{filler} Bearer {known} and more"), &[]),
            ] {
                let line = safe_line(&said, known, longest);
                assert!(!line.contains("pla") && line.len() <= longest, "{before}: {line}");
            }
        }
    }
    // A secret with white space, at which the text is cut.
    for before in MAX_TEXT - 40..MAX_TEXT + 5 {
        let said = format!("{}planted  secret\twith-gaps", " ".repeat(before));
        let line = safe_line(&said, &["planted  secret\twith-gaps"], 50);
        assert!(!line.contains("pla") && !line.contains("secret"), "{before}: {line}");
    }
    assert_eq!(safe_line("a\r\n  b\tc", &[], 50), "a b c");
    assert_eq!(safe_line(&"x".repeat(90), &[], 50), format!("{}\u{2026}", "x".repeat(47)));
}

#[test]
fn c1_a_malicious_text_takes_little_time() {
    for part in [
        "://",
        "bearer=",
        "Authorization: ",
        "password=\"",
        "token: x ",
        "LS0tLS1CRUdJTi",
        "-----BEGIN ",
        "=",
        "\\",
        "basic+",
        "basic=",
        "basic+.",
        "bearer=token ",
        "password={<redacted> ",
        "token=[<redacted>",
        "token: x\"",
        "\"token\": {\"",
        "Authorization: null,",
    ] {
        for length in [MAX_TEXT, 4 * MAX_TEXT] {
            let text = part.repeat(length / part.len());
            // Each word that may be base64 is decoded, up to this limit.
            let most = text.len() * 128;
            let visited_bytes = secrets_in(&text, &text, &[]).visited_bytes;
            assert!(visited_bytes <= most, "{part}: {visited_bytes} of {}", text.len());
        }
    }
    let dots = format!("{}{}", "basic=".repeat(9_000), ".=".repeat(9_000));
    assert!(secrets_in(&dots, &dots, &[]).visited_bytes <= dots.len() * 128);
}

#[test]
fn c1_a_long_user_and_password_is_removed() {
    // Base64 of only the letter "a": the decoded text has no colon.
    let long = "YWFh".repeat(300);
    assert_eq!(redacted(&format!("Basic {long}, b")), format!("Basic {REDACTED}, b"));
    assert_eq!(redacted("Basic YWFh, b"), "Basic YWFh, b");
}

/// Returns texts that carry a secret, in different ways.
fn carried(secret: &str) -> impl Strategy<Value = String> {
    let secret = secret.to_owned();
    (0..24_usize).prop_map(move |way| {
        let jwt = format!("eyJhbGciOiJSUzI1NiJ9.{secret}.c2lnbmF0dXJl");
        match way {
            0 => format!("Authorization: Bearer {secret}\n"),
            1 => format!("authorization: Basic {secret}\r\n"),
            2 => format!("\"Authorization\": \"Bearer {secret}\""),
            3 => format!("Authorization:[Negotiate {secret}]"),
            4 => format!("{{\\\"authorization\\\":\\\"Digest {secret}\\\"}}"),
            5 => format!("Bearer {secret}"),
            6 => format!("BEARER\t{secret}"),
            7 => jwt,
            8 => format!("client_secret={secret}&x=y"),
            9 => format!("\"clientSecret\":\"{secret}\""),
            10 => format!("password: {secret}\n"),
            11 => format!("Password={secret};"),
            12 => format!("'password' : '{secret}'"),
            13 => format!("https://x.blob.test/y?sv=1&sig={secret}"),
            14 => format!("https://user:{secret}@host/path"),
            15 => format!("-----BEGIN EC PRIVATE KEY-----\n{secret}\n-----END EC PRIVATE KEY-----"),
            16 => format!("client_assertion={secret}"),
            17 => format!("access_token=\"{secret}\""),
            18 => format!("\"refresh_token\" = \"{secret}\""),
            19 => format!("Set-Cookie: session={secret}; path=/\n"),
            20 => format!("X-IDENTITY-HEADER: {secret}\n"),
            21 => format!("AccountKey={secret}"),
            22 => format!("sig={secret}"),
            _ => format!("x-ms-authorization-auxiliary: {secret}\n"),
        }
    })
}

/// Returns words and separators that are not part of a secret.
fn ordinary() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[A-Za-z]{1,12}",
        "[0-9]{1,4}",
        Just("bearer token".to_owned()),
        Just("Basic SKU".to_owned()),
        Just("password".to_owned()),
        Just("https://a.test/b".to_owned()),
        Just("HTTP 403:".to_owned()),
        Just("kind=Service,".to_owned()),
        Just("\"name\": \"x\"".to_owned()),
        Just("\u{e4}\u{1f512}".to_owned()),
    ];
    proptest::collection::vec(word, 0..12).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn c1_no_text_shows_a_secret_that_is_carried_in_it(
        before in ordinary(), between in "[ -~\n]{0,20}", carrier in carried("pl4nted-marker_x"), after in "[ -~]{0,20}",
    ) {
        // A quotation mark directly before the carrier would change which part is a name and which is a value.
        let text = format!("{before}{between} {carrier} {after}");
        let shown = redacted(&text);
        prop_assert!(!shown.contains("pl4nted-marker"), "{text:?} became {shown:?}");
        let again = redacted(&shown);
        prop_assert!(!again.contains("pl4nted-marker"));
    }

    #[test]
    fn c1_no_text_shows_a_secret_that_is_known(before in ".{0,30}", secret in "[!-~]{8,30}", after in ".{0,30}") {
        let shown = redacted_of(&format!("{before}{secret}{after}"), &[&secret]).into_owned();
        prop_assert!(!shown.contains(&secret), "{shown:?}");
    }

    #[test]
    fn c1_a_text_without_secrets_is_as_it_was(text in ordinary()) {
        let shown = redacted(&text);
        prop_assert_eq!(&*shown, &*text);
    }

    #[test]
    fn c1_any_text_is_printed_as_one_short_line(text in any::<String>(), known in any::<String>()) {
        let line = safe_line(&text, &[&known], 100);
        prop_assert!(line.len() <= 100 && !line.contains('\n'));
        let again = Printable::line(&line);
        prop_assert_eq!(again.as_str(), &*line);
    }
}
