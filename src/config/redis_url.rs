//! The URL of a Redis: text to value and back, and which URLs go together. No message quotes a URL, which may contain a
//! password.

use std::fmt;

use url::Url;

use super::texts::{Read, percent_decoded};
use super::values::BadValue;

const ADVICE: &str = r#"write it as "redis://user:password@host:6379""#;
const SENTINEL_ADVICE: &str = r#"write it as "redis+sentinel://user:password@host:26379/mymaster""#;

/// Where a Redis server or a Sentinel listens, and how to log in. Its `Debug` leaves the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    pub kind: RedisKind,
    pub tls: bool,
    pub host: String,
    pub port: u16,
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisKind {
    /// A server; several of them are a Cluster.
    Server,
    /// A Sentinel, which knows where this master is.
    Sentinel { master: String },
}

impl RedisUrl {
    pub fn read(text: &str) -> Read<Self> {
        let wrong = |message: &str| BadValue::new(message, ADVICE);
        let url = Url::parse(text).ok().filter(Url::has_host).ok_or_else(|| wrong("is not the URL of a Redis"))?;
        let (tls, kind, port) = match url.scheme() {
            "redis" => (false, RedisKind::Server, 6379),
            "rediss" => (true, RedisKind::Server, 6379),
            "redis+sentinel" => (false, sentinel(&url)?, 26_379),
            "rediss+sentinel" => (true, sentinel(&url)?, 26_379),
            _ => {
                let advice = r#"use "redis://", "rediss://" (TLS) or "redis+sentinel://""#;
                return Err(BadValue::new("is not the URL of a Redis", advice));
            }
        };
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("has more than a login, a host, a port and a path"));
        }
        let user = percent_decoded(url.username()).ok_or_else(|| wrong("has a user name that is not UTF-8"))?;
        let user = Some(user).filter(|user| !user.is_empty());
        let password = url.password().map(|text| percent_decoded(text).ok_or(()));
        let password = password.transpose().map_err(|()| wrong("has a password that is not UTF-8"))?;
        if user.is_some() && password.is_none() {
            let advice = r#"write "redis://user:password@host", or "redis://:password@host" for a password alone"#;
            return Err(BadValue::new("has a user without a password", advice));
        }
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let database = if kind == RedisKind::Server { database(&url)? } else { 0 };
        Ok(RedisUrl { kind, tls, host, port: url.port().unwrap_or(port), user, password, database })
    }
}

/// Writes the URL without the password.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let encoded =
            |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20");
        let user = self.user.as_deref().map(encoded).unwrap_or_default();
        let login = self.password.as_ref().map(|_| format!("{user}:***@")).unwrap_or_default();
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match &self.kind {
            RedisKind::Server if self.database == 0 => write!(f, "{scheme}://{login}{host}:{}", self.port),
            RedisKind::Server => write!(f, "{scheme}://{login}{host}:{}/{}", self.port, self.database),
            RedisKind::Sentinel { master } => {
                write!(f, "{scheme}+sentinel://{login}{host}:{}/{}", self.port, encoded(master))
            }
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Says what is wrong with these URLs together.
pub fn redis_mismatch(urls: &[RedisUrl]) -> Option<BadValue> {
    let (first, others) = urls.split_first()?;
    let wrong = |message: &str, advice: &str| Some(BadValue::new(message, advice));
    if others.iter().any(|url| url.kind != first.kind) {
        return wrong(
            "mixes Redis servers, Sentinels or names of masters",
            "list the servers of one Cluster, or Sentinels of one master",
        );
    }
    if others.iter().any(|url| (url.tls, &url.user, &url.password) != (first.tls, &first.user, &first.password)) {
        return wrong("has URLs that differ in scheme, user or password", "write the same in each of them");
    }
    if urls.len() > 1 && urls.iter().any(|url| url.database != 0) {
        return wrong("names a database, but a Cluster has only one", "leave the number after the port out");
    }
    None
}

fn sentinel(url: &Url) -> Read<RedisKind> {
    let wrong = |message: &str| BadValue::new(message, SENTINEL_ADVICE);
    let master = percent_decoded(url.path().trim_matches('/')).filter(|name| !name.contains('/'));
    match master {
        Some(master) if !master.is_empty() => Ok(RedisKind::Sentinel { master }),
        _ => Err(wrong("does not name the master that the Sentinel watches")),
    }
}

fn database(url: &Url) -> Read<i64> {
    let path = url.path().trim_matches('/');
    let number = if path.is_empty() { Some(0) } else { path.parse::<u16>().ok() };
    let wrong = || BadValue::new("has a path that is not the number of a database", ADVICE);
    number.map(i64::from).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RedisUrl {
        RedisUrl::read(text).unwrap()
    }

    #[test]
    fn a_url_is_taken_apart() {
        let url = read("rediss://me:p%40ss@[2001:db8::1]:6380/3");
        assert_eq!((url.tls, url.host.as_str(), url.port, url.database), (true, "2001:db8::1", 6380, 3));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@ss")));
        let plain = read("redis://cache");
        assert_eq!((plain.tls, plain.port, plain.user, plain.password), (false, 6379, None, None));
        let sentinel = read("redis+sentinel://:x@s1/mymaster");
        assert_eq!((sentinel.port, sentinel.user), (26_379, None));
        assert_eq!(sentinel.kind, RedisKind::Sentinel { master: "mymaster".to_owned() });
    }

    #[test]
    fn no_password_is_written() {
        for (text, written) in [
            ("redis://u:hunter2@a:6379", "redis://u:***@a:6379"),
            ("redis://:hunter2@a", "redis://:***@a:6379"),
            ("rediss://[::1]/2", "rediss://[::1]:6379/2"),
            ("rediss+sentinel://u:hunter2@a/main", "rediss+sentinel://u:***@a:26379/main"),
        ] {
            let url = read(text);
            assert_eq!((url.to_string(), format!("{url:?}")), (written.to_owned(), written.to_owned()));
        }
    }

    #[test]
    fn a_wrong_url_is_refused_without_quoting_it() {
        for (text, message) in [
            ("http://u:hunter2@a", "is not the URL of a Redis"),
            ("a:6379", "is not the URL of a Redis"),
            ("redis://", "is not the URL of a Redis"),
            ("redis://hunter2@a", "has a user without a password"),
            ("redis://u:hunter2@a/x", "has a path that is not the number of a database"),
            ("redis://u:hunter2@a/0?timeout=1", "has more than"),
            ("redis://u:%ffhunter2@a", "has a password that is not UTF-8"),
            ("redis+sentinel://u:hunter2@a", "does not name the master"),
        ] {
            let bad = RedisUrl::read(text).unwrap_err();
            assert!(bad.message.contains(message), "{text}: {bad:?}");
            assert!(!format!("{bad:?}").contains("hunter2"), "{bad:?}");
        }
    }

    #[test]
    fn urls_of_one_fleet_fit_together() {
        let told = |texts: &[&str]| redis_mismatch(&texts.iter().map(|text| read(text)).collect::<Vec<_>>());
        assert_eq!(told(&["redis://a", "redis://b"]), None);
        assert_eq!(told(&["redis+sentinel://a/m", "redis+sentinel://b/m"]), None);
        for (texts, message) in [
            (["redis://a", "redis+sentinel://b/m"], "mixes"),
            (["redis+sentinel://a/m", "redis+sentinel://b/n"], "mixes"),
            (["redis://a", "rediss://b"], "differ in scheme"),
            (["redis://:x@a", "redis://b"], "differ in scheme"),
            (["redis://a/1", "redis://b"], "names a database"),
        ] {
            assert!(told(&texts).is_some_and(|bad| bad.message.contains(message)), "{texts:?}");
        }
    }
}
