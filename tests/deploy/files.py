"""compose.yaml and the Kubernetes files are valid by their schemas and match the program and its image."""

import json
import pathlib
import re
import sys
import zipfile

from world import DEPLOY, KEPT, ROOT, NotPossible, said

# The oldest with native sidecars, and one of the newest.
KUBERNETES = ["1.29.0", "1.36.0"]
# Contains compose's schema, and depends on readers for YAML and schemas.
CHECKER = "check-jsonschema"
# Contains Kubernetes' schemas.
ARCHIVE = "kubernetes-validate"


def check(curtsy, folder):
    python, archive = fetched()
    sys.path.insert(0, str(python))
    from ruamel.yaml import YAML

    for name in ["compose.yaml", "fleet.compose.yaml"]:
        said(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / name,
             env={"PYTHONPATH": str(python)})
        print(f"  {name} is valid")
    versions = [Schemas(archive, version) for version in KUBERNETES]
    for name in ["sidecar", "shared", "fleet"]:
        resources = list(YAML(typ="safe").load_all(DEPLOY / f"kubernetes/{name}.yaml"))
        for schemas in versions:
            for resource in resources:
                schemas.validate(resource)
        check_agreement(curtsy, folder, resources)
        print(f"  kubernetes/{name}.yaml is valid: {', '.join(resource['kind'] for resource in resources)}")


def fetched():
    """The paths of the checker and of the archive of schemas; both are fetched once."""
    python, archives = KEPT / "python", KEPT / "schemas"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    try:
        if not (python / "check_jsonschema").exists():
            said(*pip, "install", "--no-compile", "--target", python, CHECKER)
        if not list(archives.glob("*.whl")):
            said(*pip, "download", "--no-deps", "--dest", archives, ARCHIVE)
    except AssertionError as error:
        raise NotPossible(f"the schemas cannot be fetched: {error}") from error
    return python, next(archives.glob("*.whl"))


class Schemas:
    """The schemas of one Kubernetes version, read from their archive, which would take long to unpack."""

    def __init__(self, archive, version):
        import jsonschema
        import referencing

        self.jsonschema, self.archive = jsonschema, zipfile.ZipFile(archive)
        self.folder = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict"
        definitions = referencing.Resource.from_contents(self.read("_definitions.json"))
        self.registry = definitions @ referencing.Registry()

    def read(self, name):
        return json.loads(self.archive.read(f"{self.folder}/{name}"))

    def validate(self, resource):
        # networking.k8s.io/v1 is networking-v1 there.
        version = re.sub(r"^(\w+)[\w.]*/", r"\1-", resource["apiVersion"])
        schema = self.read(f"{resource['kind'].lower()}-{version}.json")
        self.jsonschema.Draft202012Validator(schema, registry=self.registry).validate(resource)


def check_agreement(curtsy, folder, resources):
    """Checks that what the files say about the image and the program is true."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    user = int(re.search(r"^USER (\d+):\1$", dockerfile, re.MULTILINE)[1])
    program = json.loads(re.search(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE)[1])
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]

    (config,) = (resource["data"]["config.toml"] for resource in resources if resource["kind"] == "ConfigMap")
    check_config(curtsy, folder, config)
    (pod,) = (resource["spec"]["template"]["spec"] for resource in resources if resource["kind"] in ("Job", "Deployment"))
    assert pod["terminationGracePeriodSeconds"] > 30, "shorter than shutdown_grace"
    (container,) = (
        container for container in pod.get("initContainers", []) + pod["containers"] if container["name"] == "curtsy"
    )
    assert container["image"] == f"curtsy:{version}", container["image"]
    security = pod["securityContext"] | container["securityContext"]
    assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"] == user, security
    assert security["runAsNonRoot"] and security["readOnlyRootFilesystem"], security
    for probe in ["startupProbe", "livenessProbe"]:
        check_probe(container[probe], program, config)
    services = [resource["spec"] for resource in resources if resource["kind"] == "Service"]
    services = [service for service in services if service["selector"]["app.kubernetes.io/name"] == "curtsy"]
    named = {port["name"] for port in container.get("ports", [])}
    for service in services:
        assert {port["targetPort"] for port in service["ports"]} == named, service
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}, mounts


def check_config(curtsy, folder, config):
    path = pathlib.Path(folder) / "config.toml"
    path.write_text(config)
    # The token comes from a secret.
    said(curtsy, "config", "check", "--strict", "--config", path, env={"CURTSY_METRICS__TOKEN": "tulip"})


def check_probe(probe, program, config):
    """Health checks run the program itself, or use HTTP if the admin listener can be reached from outside."""
    if "exec" in probe:
        assert probe["exec"]["command"] == [*program, "health"], probe
    else:
        assert probe["httpGet"]["path"] in ("/healthz", "/readyz"), probe
        assert 'admin = "0.0.0.0:3129"' in config, config
