//! Turns the results of trying clients into findings, with the fix for each.

use std::net::SocketAddr;

use super::DoctorScene;
use super::finding::Finding;
use super::trials::{TrialVerdict, Tried};
use super::variables::Env;
use crate::programs::{self, TrustFile, TrustWay};

const ABOUT: &str = "client";

/// Returns the finding for one client. `asked`: whether the user asked about this client.
pub(super) fn finding(tried: &Tried, scene: &DoctorScene, env: &Env, asked: bool) -> Finding {
    let who = match &tried.version {
        Some(version) => format!("{} {version}", tried.recipe.name),
        None => tried.recipe.name.to_owned(),
    };
    let intercepts = scene.probe.intercepts;
    match (&tried.http, &tried.https) {
        (TrialVerdict::Through, TrialVerdict::Through) if intercepts => {
            Finding::ok(ABOUT, format!("{who}: http and https come through, and it trusts the CA"))
        }
        (TrialVerdict::Through, TrialVerdict::NotRead | TrialVerdict::Through) => {
            Finding::ok(ABOUT, format!("{who}: http and https come through; https is not read here"))
        }
        (TrialVerdict::Through, TrialVerdict::Untrusted) => {
            let text = format!("{who}: does not trust curtsy's CA{}", unset(tried.recipe.name, env));
            Finding::fail(ABOUT, text, trust(tried.recipe.name, scene))
        }
        (TrialVerdict::Absent, _) => {
            let name = tried.recipe.name;
            let fix = format!("python3 -m pip install {name}    (with the Python that runs it)");
            Finding::fail(ABOUT, format!("{name} is imported, but this Python has no such library"), fix)
        }
        (TrialVerdict::Round, _) | (TrialVerdict::Through, TrialVerdict::Round) => around(tried, &who, env, asked),
        (TrialVerdict::Stranger, _) | (_, TrialVerdict::Stranger) => Finding::fail(
            ABOUT,
            format!("{who}: the proxy wants a user and a password"),
            format!(
                "export http_proxy=http://USER:PASSWORD@{0} https_proxy=http://USER:PASSWORD@{0}",
                scene.proxy.address
            ),
        ),
        (TrialVerdict::Silent, _) | (_, TrialVerdict::Silent) => Finding::warn(
            ABOUT,
            format!("{who}: did not answer within 5 s, so the result is unknown"),
            "curtsy doctor    (again, when the machine is less busy)",
        ),
        (TrialVerdict::Through, odd) | (odd, _) => Finding::fail(
            ABOUT,
            format!("{who}: {}", words(odd)),
            "curtsy tail    (in another terminal, to see what reaches the proxy)",
        ),
    }
}

fn words(verdict: &TrialVerdict) -> &str {
    match verdict {
        TrialVerdict::Odd(text) => text,
        _ => "the answer was unexpected",
    }
}

/// Returns the finding for a client that bypasses the proxy: it reads no variables, or not these.
fn around(tried: &Tried, who: &str, env: &Env, asked: bool) -> Finding {
    let is_set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty() && value != "0");
    let (text, fix) = match tried.recipe.name {
        "node" if reads_when_told(tried.version.as_deref()) && !is_set("NODE_USE_ENV_PROXY") => (
            format!("{who}: bypasses the proxy; it reads the variables only when told to"),
            "export NODE_USE_ENV_PROXY=1",
        ),
        "node" => (
            format!("{who}: bypasses the proxy; before 22.21 it reads no proxy variables"),
            "use node 22.21 or newer with NODE_USE_ENV_PROXY=1, or undici's EnvHttpProxyAgent",
        ),
        "curl" => (
            format!("{who}: bypasses the proxy, though the variables are right"),
            "look for noproxy and proxy in ~/.curlrc, and at no_proxy",
        ),
        _ => (
            format!("{who}: bypasses the proxy, though the variables are right"),
            "look at its own settings for a proxy, and at no_proxy",
        ),
    };
    if asked || tried.recipe.reads_variables {
        Finding::fail(ABOUT, text, fix)
    } else {
        Finding::warn(ABOUT, text, fix)
    }
}

/// Whether this Node.js reads the variables when told to: from 22.21 on, but not 23.
fn reads_when_told(version: Option<&str>) -> bool {
    let mut numbers = version.unwrap_or_default().split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    major >= 24 || (major == 22 && minor >= 21)
}

fn unset(name: &str, env: &Env) -> String {
    match programs::named(name).map(|program| program.trust) {
        Some(TrustWay::Variable(variable, _)) => match env.get(variable) {
            Some(value) => format!(" ({variable}={value} lacks it)"),
            None => format!(" ({variable} is not set)"),
        },
        _ => String::new(),
    }
}

/// Returns a shell line that makes a program trust the CA, including how to get the file.
pub(super) fn trust(name: &str, scene: &DoctorScene) -> String {
    let trust =
        programs::named(name).map_or(TrustWay::Variable("SSL_CERT_FILE", TrustFile::Bundle), |program| program.trust);
    match trust {
        TrustWay::Variable(variable, file) => {
            format!("{} && export {variable}=\"$PWD/{}\"", scene.get_file(file), file.name())
        }
        TrustWay::Other(_) if name == "wget" => {
            let get = scene.get_file(TrustFile::Bundle);
            format!("{get} && echo \"ca_certificate = $PWD/bundle.pem\" >> ~/.wgetrc")
        }
        TrustWay::Other(words) => format!("{}, then {words}", scene.get_file(TrustFile::Bundle)),
    }
}

/// Returns the finding for Java. It reads its proxy from properties, which a variable can set, so it need not be run.
pub(super) fn java(scene: &DoctorScene, env: &Env, asked: bool) -> Finding {
    let given = |name: &str| {
        let lists =
            ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"].into_iter().filter_map(|list| env.get(list));
        lists.flat_map(|list| list.split_whitespace()).any(|option| option.starts_with(name))
    };
    if !given("-Dhttp.proxyHost=") || !given("-Dhttps.proxyHost=") {
        let text = "java: reads no proxy variables, and JAVA_TOOL_OPTIONS names no proxy";
        let fix = java_proxy(scene.proxy.address);
        return if asked { Finding::fail(ABOUT, text, fix) } else { Finding::warn(ABOUT, text, fix) };
    }
    if scene.probe.intercepts && !given("-Djavax.net.ssl.trustStore=") {
        let text = "java: does not trust curtsy's CA (JAVA_TOOL_OPTIONS names no trust store)";
        let fix = format!(
            "{} && keytool -importcert -noprompt -alias curtsy -file ca.pem -keystore trust.p12 -storepass changeit && \
             export JAVA_TOOL_OPTIONS=\"$JAVA_TOOL_OPTIONS -Djavax.net.ssl.trustStore=$PWD/trust.p12 \
             -Djavax.net.ssl.trustStorePassword=changeit\"",
            scene.get_file(TrustFile::Ca)
        );
        return if asked { Finding::fail(ABOUT, text, fix) } else { Finding::warn(ABOUT, text, fix) };
    }
    Finding::ok(ABOUT, "java: its options name a proxy")
}

fn java_proxy(address: SocketAddr) -> String {
    let (host, port) = (address.ip(), address.port());
    format!(
        "export JAVA_TOOL_OPTIONS=\"-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port}\""
    )
}

/// Returns what is known about programs that are not tried.
pub(super) fn untried(name: &str, scene: &DoctorScene, env: &Env) -> Finding {
    let address = scene.proxy.address;
    match name {
        "httrack" => {
            let fix = format!("httrack -P {address} …");
            Finding::fail(ABOUT, "httrack: reads no proxy variables", fix)
        }
        "chromium" | "chromium-browser" | "chrome" | "google-chrome" => {
            let text =
                format!("{name}: takes the proxy from the desktop's settings or an option, and trusted CAs from NSS");
            Finding::warn(ABOUT, text, format!("{name} --proxy-server=http://{address} …    (the CA: curtsy setup)"))
        }
        "perl" if env.get("PERL_LWP_ENV_PROXY").is_none_or(|value| value != "1") => {
            let text = "perl: LWP reads the proxy variables only when told to";
            Finding::warn(ABOUT, text, "export PERL_LWP_ENV_PROXY=1")
        }
        "php" => {
            let text = "php: file_get_contents and other streams read no proxy variables; the curl extension does";
            Finding::warn(ABOUT, text, "use the curl extension, or give streams a context with a proxy")
        }
        "ruby" | "aria2c" | "pip" | "pip3" | "npm" | "bun" | "deno" | "go" | "perl" => {
            Finding::ok(ABOUT, format!("{name}: reads the proxy variables (known, not tried)"))
        }
        _ => {
            let text = format!("{name}: unknown program; check whether its requests reach the proxy");
            Finding::warn(ABOUT, text, "curtsy tail    (in another terminal, while it runs)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_node_cannot_be_told() {
        for (version, reads) in
            [("20.20.2", false), ("22.20.0", false), ("22.21.0", true), ("23.1.0", false), ("24.0.0", true)]
        {
            assert_eq!(reads_when_told(Some(version)), reads, "{version}");
        }
        assert!(!reads_when_told(None));
    }
}
