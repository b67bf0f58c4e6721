"""The packaged crate contains all that the build needs and nothing that is only for development."""

from world import ROOT, said

NEEDED = ["Cargo.lock", "Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "config.toml", "src/main.rs"]
FOREIGN = (".ci/", ".github/", "fuzz/", "scripts/", "tests/", "target/", "docs/images/")


def check(_curtsy, _folder):
    files = said("cargo", "package", "--list", "--locked", "--allow-dirty", "--quiet", cwd=ROOT).splitlines()
    missing = [name for name in NEEDED if name not in files]
    foreign = [name for name in files if name.startswith(FOREIGN)]
    assert not missing and not foreign, (missing, foreign)
    print(f"  the crate has {len(files)} files")
