//! The proxy that was already set in the environment: requests go through it, or the user is told why not.

use crate::config::{self, Loaded, Problems, Sources};

/// Loads the configuration. A proxy in the environment becomes the parent of ours, unless the configuration has one.
/// Returns the configuration and a message about the parent proxy.
pub(super) fn load(sources: &Sources) -> Result<(Loaded, Option<String>), Problems> {
    let loaded = config::load(sources)?;
    let Some(name) = names().find(|name| sources.env.get(*name).is_some_and(|value| !value.is_empty())) else {
        return Ok((loaded, None));
    };
    if loaded.config.upstream.proxy.is_some() || loaded.origins.of("upstream.proxy").is_some() {
        return Ok((loaded, None));
    }
    let mut through = sources.clone();
    through.overrides.add(name, "upstream.proxy", &sources.env[name]);
    Ok(match config::load(&through) {
        Ok(through) => (through, Some(format!("requests go through the proxy that {name} named"))),
        // The error may quote a secret, so the message only says that the proxy cannot be used.
        Err(_) => {
            (loaded, Some(format!("the proxy that {name} names is not used: curtsy speaks plain HTTP to proxies")))
        }
    })
}

/// Returns the variables in the order in which curl reads them.
fn names() -> impl Iterator<Item = &'static str> {
    ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"].into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(env: &[(&str, &str)], flag: Option<&str>) -> (Option<String>, Option<String>) {
        let pairs = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut sources = Sources { file: config::FileChoice::Nothing, env: pairs.collect(), ..Sources::default() };
        if let Some(flag) = flag {
            sources.overrides.add("--x", "upstream.proxy", flag);
        }
        let (loaded, told) = super::load(&sources).expect("sound settings");
        (loaded.config.upstream.proxy.map(|proxy| proxy.host), told)
    }

    #[test]
    fn the_proxy_of_before_becomes_the_parent() {
        let (parent, told) = load(&[("HTTP_PROXY", "http://corp:8080")], None);
        assert_eq!(parent.as_deref(), Some("corp"));
        assert!(told.unwrap().contains("HTTP_PROXY"));
        assert_eq!(load(&[], None), (None, None));
        assert_eq!(load(&[("http_proxy", "")], None), (None, None));
    }

    #[test]
    fn what_the_configuration_says_counts_more() {
        let (parent, told) = load(&[("http_proxy", "http://corp:8080")], Some("http://mine:1"));
        assert_eq!((parent.as_deref(), told), (Some("mine"), None));
    }

    #[test]
    fn what_cannot_be_used_is_told_without_its_secret() {
        let (parent, told) = load(&[("all_proxy", "socks5://me:hunter2@corp:1080")], None);
        let told = told.unwrap();
        assert!(parent.is_none() && told.contains("all_proxy") && !told.contains("hunter2"), "{told}");
    }
}
