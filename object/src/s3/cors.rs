//! Cross-origin requests: which pages of other origins a bucket lets ask, and the headers that tell browsers.

use super::document::decode;
use super::error::{Code, S3Error};
use super::head::RequestHead;
use super::metadata::Header;
use super::policy::is_like;
use super::xml::{Element, XmlWriter};

/// The attribute of a bucket with its rules, as a document.
pub(super) const CORS: &str = "cors";
/// Rules of a bucket.
pub const RULES_MAX: usize = 100;
/// Longest document that is kept, bytes.
pub const CORS_BYTES_MAX: usize = 32 << 10;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsRule {
    origins: Vec<String>,
    methods: Vec<String>,
    headers: Vec<String>,
    exposed: Vec<String>,
    seconds_max: Option<u32>,
    id: Option<String>,
}

/// Reads a `CORSConfiguration`.
///
/// # Errors
/// [`Code::MalformedXML`], [`Code::InvalidRequest`]: a method that no rule can allow, or two wildcards in one text.
pub fn decode_cors(bytes: &[u8]) -> Result<Vec<CorsRule>, S3Error> {
    if bytes.len() > CORS_BYTES_MAX {
        return Err(Code::MaxMessageLengthExceeded.into());
    }
    let root = decode(bytes, "CORSConfiguration")?;
    let rules: Vec<_> = root.children.iter().map(decode_rule).collect::<Result<_, _>>()?;
    if rules.is_empty() || rules.len() > RULES_MAX { Err(Code::MalformedXML.into()) } else { Ok(rules) }
}

fn decode_rule(rule: &Element) -> Result<CorsRule, S3Error> {
    let texts = |name: &str| -> Vec<String> {
        rule.children.iter().filter(|child| child.name == name).map(|child| child.text.trim().to_owned()).collect()
    };
    let (origins, methods) = (texts("AllowedOrigin"), texts("AllowedMethod"));
    if rule.name != "CORSRule" || origins.is_empty() || methods.is_empty() {
        return Err(Code::MalformedXML.into());
    }
    if methods.iter().any(|method| !matches!(method.as_str(), "GET" | "PUT" | "HEAD" | "POST" | "DELETE")) {
        return Err(Code::InvalidRequest.because("Found unsupported HTTP method in CORS config"));
    }
    let headers = texts("AllowedHeader");
    if origins.iter().chain(&headers).any(|text| text.matches('*').count() > 1) {
        return Err(Code::InvalidRequest.because("An AllowedOrigin or AllowedHeader can have one wildcard"));
    }
    let seconds_max = rule.text_of("MaxAgeSeconds").map(|text| text.trim().parse().map_err(|_| Code::MalformedXML));
    let id = rule.text_of("ID").map(str::to_owned);
    Ok(CorsRule {
        origins,
        methods,
        headers,
        exposed: texts("ExposeHeader"),
        seconds_max: seconds_max.transpose()?,
        id,
    })
}

/// The document of rules.
#[must_use]
pub fn write_cors(rules: &[CorsRule]) -> XmlWriter {
    let mut xml = XmlWriter::new("CORSConfiguration");
    for rule in rules {
        xml.element("CORSRule", |xml| {
            if let Some(id) = &rule.id {
                xml.text("ID", id);
            }
            let lists: [(&'static str, &[String]); 4] = [
                ("AllowedHeader", &rule.headers),
                ("AllowedMethod", &rule.methods),
                ("AllowedOrigin", &rule.origins),
                ("ExposeHeader", &rule.exposed),
            ];
            lists.into_iter().for_each(|(name, texts)| texts.iter().for_each(|text| xml.text(name, text)));
            if let Some(seconds) = rule.seconds_max {
                xml.number("MaxAgeSeconds", seconds.into());
            }
        });
    }
    xml
}

impl CorsRule {
    fn fits(&self, origin: &str, method: &str, headers: &[String]) -> bool {
        let is_allowed =
            |header: &String| self.headers.iter().any(|allowed| is_like(&allowed.to_ascii_lowercase(), header));
        self.origins.iter().any(|allowed| is_like(allowed, origin))
            && self.methods.iter().any(|allowed| allowed == method)
            && headers.iter().all(is_allowed)
    }

    fn headers_for(&self, origin: &str, asked: &[String]) -> Vec<Header> {
        let is_every = self.origins.iter().any(|allowed| allowed == "*");
        let mut headers: Vec<Header> = vec![
            ("access-control-allow-origin".into(), if is_every { "*" } else { origin }.to_owned()),
            ("access-control-allow-methods".into(), self.methods.join(", ")),
            ("vary".into(), "Origin, Access-Control-Request-Headers, Access-Control-Request-Method".to_owned()),
        ];
        if !is_every {
            headers.push(("access-control-allow-credentials".into(), "true".to_owned()));
        }
        if !asked.is_empty() {
            headers.push(("access-control-allow-headers".into(), asked.join(", ")));
        }
        if !self.exposed.is_empty() {
            headers.push(("access-control-expose-headers".into(), self.exposed.join(", ")));
        }
        if let Some(seconds) = self.seconds_max {
            headers.push(("access-control-max-age".into(), seconds.to_string()));
        }
        headers
    }
}

fn asked_headers(head: &RequestHead) -> Vec<String> {
    let text = head.header("access-control-request-headers").unwrap_or_default();
    let names = text.split(',').map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| !name.is_empty()).collect()
}

/// The headers of the reply to a preflight request.
///
/// # Errors
/// [`Code::BadRequest`]: it is none; [`Code::AccessForbidden`]: no rule fits.
pub fn preflight(head: &RequestHead, rules: Option<&[CorsRule]>) -> Result<Vec<Header>, S3Error> {
    let origin = head.header("origin").filter(|origin| !origin.is_empty());
    let origin = origin.ok_or(Code::BadRequest.because("Insufficient information. Origin request header needed."))?;
    let method = head.header("access-control-request-method");
    let method = method.ok_or(Code::BadRequest.because("Invalid Access-Control-Request-Method"))?;
    let rules = rules.ok_or(Code::AccessForbidden.because("CORSResponse: CORS is not enabled for this bucket."))?;
    let asked = asked_headers(head);
    let rule = rules.iter().find(|rule| rule.fits(origin, method, &asked)).ok_or(Code::AccessForbidden)?;
    Ok(rule.headers_for(origin, &asked))
}

/// The headers that the reply to a request of a page of another origin gets beside its own.
#[must_use]
pub fn cors_headers(head: &RequestHead, rules: &[CorsRule]) -> Vec<Header> {
    let Some(origin) = head.header("origin") else { return Vec::new() };
    let method = head.header("access-control-request-method").unwrap_or(head.method.name());
    let rule = rules.iter().find(|rule| rule.fits(origin, method, &[]));
    rule.map_or_else(Vec::new, |rule| rule.headers_for(origin, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::head::Method;

    const RULES: &str = "<CORSConfiguration><CORSRule><ID>a</ID><AllowedOrigin>https://*.example</AllowedOrigin>\
        <AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod><AllowedHeader>X-Amz-*</AllowedHeader>\
        <ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule><CORSRule>\
        <AllowedOrigin>*</AllowedOrigin><AllowedMethod>HEAD</AllowedMethod></CORSRule></CORSConfiguration>";

    fn head(method: Method, headers: &[(&str, &str)]) -> RequestHead {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RequestHead::new(method, "/bucket/key", headers).expect("a head")
    }

    fn value(headers: &[Header], name: &str) -> Option<String> {
        headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn rules_are_read_and_fit() {
        let rules = decode_cors(RULES.as_bytes()).expect("rules");
        assert_eq!(decode_cors(write_cors(&rules).finish().as_bytes()), Ok(rules.clone()));
        let ask = |origin: &str, method: &str, headers: &str| {
            let head = head(
                Method::Options,
                &[
                    ("origin", origin),
                    ("access-control-request-method", method),
                    ("access-control-request-headers", headers),
                ],
            );
            preflight(&head, Some(&rules)).map_err(|error| error.code)
        };
        let told = ask("https://a.example", "PUT", "x-amz-date, X-Amz-Acl").expect("a rule fits");
        assert_eq!(value(&told, "access-control-allow-origin").as_deref(), Some("https://a.example"));
        assert_eq!(value(&told, "access-control-allow-headers").as_deref(), Some("x-amz-date, x-amz-acl"));
        assert_eq!(value(&told, "access-control-allow-methods").as_deref(), Some("GET, PUT"));
        assert_eq!(value(&told, "access-control-allow-credentials").as_deref(), Some("true"));
        assert_eq!(value(&told, "access-control-expose-headers").as_deref(), Some("ETag"));
        assert_eq!(value(&told, "access-control-max-age").as_deref(), Some("60"));
        for (origin, method, headers) in
            [("https://b.test", "PUT", ""), ("https://a.example", "DELETE", ""), ("https://a.example", "PUT", "other")]
        {
            assert_eq!(ask(origin, method, headers), Err(Code::AccessForbidden), "{origin} {method} {headers}");
        }
        let every = cors_headers(&head(Method::Head, &[("origin", "http://x")]), &rules);
        assert_eq!(value(&every, "access-control-allow-origin").as_deref(), Some("*"));
        for absent in ["allow-credentials", "allow-headers", "expose-headers", "max-age"] {
            assert_eq!(value(&every, &format!("access-control-{absent}")), None, "{absent}");
        }
        assert_eq!(cors_headers(&head(Method::Head, &[]), &rules), []);
        let none = head(Method::Options, &[("origin", "http://x"), ("access-control-request-method", "GET")]);
        assert_eq!(preflight(&none, None).map_err(|error| error.code), Err(Code::AccessForbidden));
        assert_eq!(preflight(&head(Method::Options, &[]), None).map_err(|error| error.code), Err(Code::BadRequest));
    }

    #[test]
    fn what_is_no_set_of_rules_is_refused() {
        let code = |text: &str| decode_cors(text.as_bytes()).map_err(|error| error.code);
        assert_eq!(code("<CORSConfiguration/>"), Err(Code::MalformedXML));
        assert_eq!(code(&RULES.replace("<AllowedOrigin>*</AllowedOrigin>", "")), Err(Code::MalformedXML));
        assert_eq!(code(&RULES.replace("HEAD", "PATCH")), Err(Code::InvalidRequest));
        assert_eq!(code(&RULES.replace("https://*.example", "*.*")), Err(Code::InvalidRequest));
        assert_eq!(code(&RULES.replace(">60<", ">x<")), Err(Code::MalformedXML));
        let rule = "<CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod></CORSRule>";
        let many = |count: usize| code(&format!("<CORSConfiguration>{}</CORSConfiguration>", rule.repeat(count)));
        assert!(many(RULES_MAX).is_ok());
        assert_eq!(many(RULES_MAX + 1), Err(Code::MalformedXML));
        let long = |len: usize| code(&format!("{RULES}{}", " ".repeat(len - RULES.len())));
        assert!(long(CORS_BYTES_MAX).is_ok());
        assert_eq!(long(CORS_BYTES_MAX + 1), Err(Code::MaxMessageLengthExceeded));
    }
}
