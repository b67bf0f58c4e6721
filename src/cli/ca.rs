//! `curtsy ca`: shows, exports and replaces the local CA for interception, and makes this machine trust it.
//!
//! Works on the CA's files, so no curtsy has to run. Changes the system's trusted CAs only when the user asks for it,
//! and prints what it does there. Never shows the key.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand, ValueEnum};
use rustls::pki_types::CertificateDer;

use super::config::Streams;
use super::stores::{Machine, NamedCa, system};
use crate::app;
use crate::config::{self, Config, Sources};
use crate::tls::{self, CaError, Files, OpenedCa};
use crate::upstream;

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  curtsy ca show
  curtsy ca export --out ca.pem                          for curl --cacert, NODE_EXTRA_CA_CERTS
  curtsy ca export --format bundle --out bundle.pem      for SSL_CERT_FILE, REQUESTS_CA_BUNDLE
  sudo curtsy ca trust --state-dir ~/.local/state/curtsy
  curtsy ca rotate && curtsy ca export --out ca.pem      distribute it, and later:
  curtsy ca rotate --now")]
pub(super) struct CaArgs {
    #[command(subcommand)]
    command: CaCommand,
    /// Directory of the CA; default: as configured
    // It needs its own id: before the command, `--state-dir` is a setting.
    #[arg(id = "ca_state_dir", long = "state-dir", global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum CaCommand {
    /// Show the CA, and when it expires
    Show,
    /// Write the certificate that clients have to trust; creates the CA if there is none
    Export(ExportArgs),
    /// Make this machine's programs trust the CA (needs root)
    Trust(SystemArgs),
    /// Make this machine's programs stop trusting the CA (needs root)
    Untrust(SystemArgs),
    /// Create the next CA, which is exported together with this one; with --now it replaces this one
    Rotate(RotateArgs),
}

#[derive(Args, Clone, Debug)]
struct ExportArgs {
    /// pem, der (one certificate, for Windows and phones), or bundle (with the system's own roots)
    #[arg(long, value_name = "FORMAT", default_value = "pem")]
    format: CaFormat,
    /// Where to write; default: standard output
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CaFormat {
    Pem,
    Der,
    Bundle,
}

#[derive(Args, Clone, Debug)]
struct SystemArgs {
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args, Clone, Debug)]
struct RotateArgs {
    /// Sign with the next CA from now on; HTTPS fails for clients that trust only the old one
    #[arg(long)]
    now: bool,
}

/// Runs the command and returns the exit code. An `Err` means that the terminal could not be written.
pub(super) fn run(args: &CaArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let config = match config::load(sources) {
        Ok(loaded) => loaded.config,
        Err(problems) => {
            writeln!(streams.err, "{}", problems.paint(streams.paint))?;
            return Ok(1);
        }
    };
    let done = files(args, &config).and_then(|files| obey(args, &config, &files, &Machine::of(&sources.env)));
    match done {
        Ok(output) => {
            streams.out.write_all(&output)?;
            Ok(0)
        }
        Err(problem) => {
            writeln!(streams.err, "error: {problem}")?;
            Ok(1)
        }
    }
}

fn files(args: &CaArgs, config: &Config) -> Result<Files, String> {
    let files = match &args.state_dir {
        Some(directory) => Files::of(&config.tls, Some(directory)),
        None => app::ca_files(config),
    };
    files.ok_or_else(|| {
        "with state_dir = \"memory\" only the running curtsy has the CA; \
         get it through that proxy: http://curtsy.invalid/ca.pem"
            .to_owned()
    })
}

/// Runs the subcommand and returns its output.
fn obey(args: &CaArgs, config: &Config, files: &Files, machine: &Machine) -> Result<Vec<u8>, String> {
    let named = || certificates(files).map(|all| all.iter().filter_map(NamedCa::of).collect::<Vec<_>>());
    match &args.command {
        CaCommand::Show => show(config, files).map(String::into_bytes),
        CaCommand::Export(args) => export(args, files),
        CaCommand::Trust(args) => system::trust(machine, &named()?, args.dry_run).map(String::into_bytes),
        CaCommand::Untrust(args) => system::untrust(machine, &named()?, args.dry_run).map(String::into_bytes),
        CaCommand::Rotate(args) => rotate(args, files).map(String::into_bytes).map_err(|error| error.to_string()),
    }
}

fn show(config: &Config, files: &Files) -> Result<String, String> {
    if !files.certificate().exists() {
        return Ok(
            "There is no CA yet. It is created when tls.intercept is first used, or by: curtsy ca export\n".to_owned()
        );
    }
    let certificates = files.certificates().map_err(|error| error.to_string())?;
    let mut text = String::new();
    for (certificate, label) in certificates.iter().zip(["CA", "next CA"]) {
        let shown = tls::describe(certificate).ok_or("the certificate cannot be read")?;
        text.push_str(&format!(
            "{label:<11}{}, from {} to {}\nSHA-256    {}\n",
            shown.name,
            day(shown.from),
            day(shown.until),
            shown.fingerprint
        ));
    }
    let used = if config.tls.intercept { "yes" } else { "no: tls.intercept is off" };
    let (certificate, key) = (files.certificate().display(), files.key().display());
    text.push_str(&format!("file       {certificate}\nkey        {key}\nin use     {used}\n"));
    Ok(text)
}

/// `2026-05-04`
fn day(at: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(at).to_string();
    text.split('T').next().unwrap_or_default().to_owned()
}

fn export(args: &ExportArgs, files: &Files) -> Result<Vec<u8>, String> {
    let certificates = certificates(files)?;
    let pem = || certificates.iter().map(tls::pem).collect::<String>();
    let bytes = match args.format {
        CaFormat::Pem => pem().into_bytes(),
        CaFormat::Der => certificates.last().map(|certificate| certificate.to_vec()).unwrap_or_default(),
        CaFormat::Bundle => bundle(&upstream::system_certificates(), &pem())?,
    };
    let Some(path) = &args.out else { return Ok(bytes) };
    std::fs::write(path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(format!("{} written\n", path.display()).into_bytes())
}

/// Returns the system's roots and ours in one file, for programs that read all their roots from one file.
fn bundle(system: &[CertificateDer<'static>], ours: &str) -> Result<Vec<u8>, String> {
    if system.is_empty() {
        let why = "this system has no trusted certificates to bundle ours with; install its ca-certificates";
        return Err(why.to_owned());
    }
    let mut text: String = system.iter().map(tls::pem).collect();
    text.push_str(ours);
    Ok(text.into_bytes())
}

/// Returns the certificates of the CA, which is created if there is none, and of the next CA.
fn certificates(files: &Files) -> Result<Vec<CertificateDer<'static>>, String> {
    let opened = if files.certificate().exists() { Ok(()) } else { files.open().map(|_| ()) };
    opened.and_then(|()| files.certificates()).map_err(|error| error.to_string())
}

fn rotate(args: &RotateArgs, files: &Files) -> Result<String, CaError> {
    if args.now {
        files.switch()?;
        return Ok(
            "The next CA is the CA now. A running curtsy signs with it after a reload or a restart.\n".to_owned()
        );
    }
    let next = |files: &Files| files.next().map(|path: &Path| path.display().to_string()).unwrap_or_default();
    let opened = files.prepare()?;
    let what = if opened == OpenedCa::Made { "The next CA is" } else { "A next CA was already" };
    Ok(format!(
        "{what} in {}. It signs nothing yet, but `curtsy ca export` and, after a reload, /ca.pem include it\n\
         with the current one. When all clients trust it: curtsy ca rotate --now\n",
        next(files)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> (tempfile::TempDir, Files) {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::of(&config::Tls::default(), Some(directory.path())).unwrap();
        (directory, files)
    }

    #[test]
    fn it_is_made_to_be_exported_and_not_to_be_shown() {
        let (_directory, files) = kept();
        assert!(show(&Config::default(), &files).unwrap().contains("no CA yet"));
        let pem = export(&ExportArgs { format: CaFormat::Pem, out: None }, &files).unwrap();
        assert!(pem.starts_with(b"-----BEGIN CERTIFICATE-----"));
        let shown = show(&Config::default(), &files).unwrap();
        assert!(shown.contains("curtsy CA ") && shown.contains("tls.intercept is off"), "{shown}");
        assert!(!shown.contains("PRIVATE"));
    }

    #[test]
    fn both_are_handed_out_until_the_next_takes_over() {
        let (_directory, files) = kept();
        let pems = || {
            let pem = export(&ExportArgs { format: CaFormat::Pem, out: None }, &files).unwrap();
            String::from_utf8(pem).unwrap().matches("BEGIN CERTIFICATE").count()
        };
        assert_eq!(pems(), 1);
        rotate(&RotateArgs { now: false }, &files).unwrap();
        assert_eq!(pems(), 2);
        rotate(&RotateArgs { now: true }, &files).unwrap();
        assert_eq!(pems(), 1);
    }

    #[test]
    fn a_bundle_ends_with_ours_and_is_refused_without_others() {
        let (_directory, files) = kept();
        let ours = certificates(&files).unwrap();
        let text = bundle(&ours, "OURS").unwrap();
        assert!(text.ends_with(b"-----END CERTIFICATE-----\nOURS"));
        assert!(bundle(&[], "OURS").unwrap_err().contains("ca-certificates"));
    }

    #[test]
    fn an_export_goes_to_a_file() {
        let (directory, files) = kept();
        let out = directory.path().join("out.der");
        let told = export(&ExportArgs { format: CaFormat::Der, out: Some(out.clone()) }, &files).unwrap();
        assert!(String::from_utf8(told).unwrap().ends_with("out.der written\n"));
        assert_eq!(std::fs::read(out).unwrap(), certificates(&files).unwrap()[0].as_ref());
        let bad = directory.path().join("none/out.pem");
        assert!(
            export(&ExportArgs { format: CaFormat::Pem, out: Some(bad) }, &files).unwrap_err().contains("cannot write")
        );
    }
}
