# SPDX-License-Identifier: Apache-2.0
"""The CRDs against the reference's tables, and a real API server's opinion of them."""

import ast
import importlib
import json
import re

import pytest
import yaml
from kubernetes.client import ApiException

from conftest import ROOT, SHARED

CRDS = {crd["spec"]["names"]["plural"]: crd
        for crd in map(yaml.safe_load, (path.read_text() for path in sorted((ROOT / "crds").glob("*.yaml"))))}
KINDS = ("dynamocomponentdeployments", "dynamographdeploymentrequests", "dynamographdeployments",
         "dynamographdeploymentscalingadapters", "dynamomodels", "dynamoworkermetadatas")

# Where the tables name a type of Kubernetes but not its fields. What is below such a path comes
# from the API server itself: test_generated_from_this_api_server.
CORE = re.compile(r"(^|\.)(envs|livenessProbe|readinessProbe|tolerations|autoscaling\.(behavior|metrics))$"
                  r"|^\.spec(\.services\{\})?\.resources\.claims$"
                  r"|^\.spec\.profilingConfig\.resources\.claims$")
# Keyword of a schema -> its name in the tables.
ATTRIBUTES = {"enum": "enum", "default": "default", "minimum": "minimum", "maximum": "maximum",
              "minLength": "minLength", "maxLength": "maxLength", "minItems": "minItems",
              "maxItems": "maxItems", "minProperties": "minProperties", "maxProperties": "maxProperties",
              "pattern": "pattern", "format": "format", "nullable": "nullable",
              "x-kubernetes-preserve-unknown-fields": "preserve-unknown-fields",
              "x-kubernetes-list-type": "list-type", "x-kubernetes-list-map-keys": "list-map-keys",
              "x-kubernetes-map-type": "map-type", "x-kubernetes-embedded-resource": "embedded-resource"}


def fields(schema, path="", required=False):
    """Yields (path, type, required, attributes) for a schema and everything below it."""
    attributes = {name: schema[key] for key, name in ATTRIBUTES.items() if key in schema}
    if "x-kubernetes-validations" in schema:
        attributes["cel"] = "; ".join(rule["rule"] for rule in schema["x-kubernetes-validations"])
    kind = "int-or-string" if schema.get("x-kubernetes-int-or-string") else schema["type"]
    yield path, kind, required, attributes
    if CORE.search(path):
        return
    if path.endswith(".extraPodSpec"):
        yield path + ".*", "(core type)", False, {"keys": ",".join(sorted(schema["properties"]))}
        return
    for name, prop in schema.get("properties", {}).items():
        if path or name not in ("apiVersion", "kind", "metadata"):
            yield from fields(prop, f"{path}.{name}", name in schema.get("required", []))
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from fields(schema[key], path + suffix)


def parse_attributes(text):
    """`a=1; b='x'` as a dictionary. A CEL rule is bare text up to the end."""
    out = {}
    while text:
        name, _, text = text.partition("=")
        if name in ("cel", "keys"):
            out[name], text = text, ""
            continue
        # Values are Python literals; the shortest prefix that parses is the value.
        for end in [match.start() for match in re.finditer("; ", text)] + [len(text)]:
            try:
                out[name], text = ast.literal_eval(text[:end]), text[end + 2:]
                break
            except (SyntaxError, ValueError):
                continue
        else:
            raise ValueError(f"cannot read {name}={text}")
    return out


def table(plural):
    """The reference's table of a kind: header lines, and fields as fields() yields them."""
    path = SHARED / f"data/crds/0.9.0/{plural}.tsv"
    if not path.exists():
        return [], []
    lines = path.read_text().splitlines()
    rows = []
    for line in (line for line in lines if not line.startswith("#")):
        field, kind, required, attributes = (line.split("\t") + ["", ""])[:4]
        rows.append((field, kind, required == "required", parse_attributes(attributes)))
    return [line for line in lines if line.startswith("#")], rows


def header(crd):
    """The header lines that the table of this CRD must have."""
    spec = crd["spec"]
    names, (version,) = spec["names"], spec["versions"]
    yield (f"# {names['kind']} plural={names['plural']} short={names['shortNames']} scope={spec['scope']} "
           f"categories={names.get('categories')}")
    yield (f"## version {version['name']} served={version['served']} storage={version['storage']} "
           f"subresources={sorted(version.get('subresources', {}))}")
    for column in version["additionalPrinterColumns"]:
        yield (f"## column {column['name']} {column['type']} {column['jsonPath']}\t"
               f"{column.get('format', '')}\t{column.get('description', '')}\t"
               f"priority={column.get('priority', 0)}")


def test_all_kinds_are_there():
    assert sorted(CRDS) == sorted(KINDS)
    assert all(crd["spec"]["group"] == "nvidia.com" for crd in CRDS.values())


@pytest.mark.parametrize("plural", KINDS)
def test_names_columns_and_subresources(shared, plural):
    assert list(header(CRDS[plural])) == table(plural)[0]


@pytest.mark.parametrize("plural", KINDS)
def test_fields(shared, plural):
    ours = sorted(fields(CRDS[plural]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]), key=str)
    assert ours == sorted(table(plural)[1], key=str)


def test_scale_paths():
    scale = CRDS["dynamographdeploymentscalingadapters"]["spec"]["versions"][0]["subresources"]["scale"]
    assert scale == {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                     "labelSelectorPath": ".status.selector"}


@pytest.mark.parametrize("plural", KINDS)
def test_every_field_of_ours_is_described(plural):
    """`kubectl explain` must say something about each field that Kubernetes does not know."""
    def walk(schema, path):
        for name, prop in schema.get("properties", {}).items():
            here = f"{path}.{name}"
            if re.search(r"\.(metadata|extraPodSpec|autoscaling|livenessProbe|readinessProbe|configMapRef"
                         r"|profilingConfig\.resources)$", here):
                continue
            assert prop.get("description"), here
            assert len(prop["description"]) <= 160, here
            walk(prop, here)
            for key in ("items", "additionalProperties"):
                if prop.get(key, {}).get("description"):  # else a type of Kubernetes, or a plain value
                    walk(prop[key], here)
    walk(CRDS[plural]["spec"]["versions"][0]["schema"]["openAPIV3Schema"], plural)


@pytest.mark.parametrize("plural", KINDS)
def test_fits_in_an_annotation(plural):
    """A plain `kubectl apply` keeps the object in an annotation of at most 256 KiB."""
    assert len(json.dumps(CRDS[plural])) < 256 * 1024


@pytest.mark.api
def test_generated_from_this_api_server(api, tools, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "crds"))
    generate = importlib.import_module("generate").generate
    made = dict(generate([str(tools / "kubectl"), "--kubeconfig", api.kubeconfig]))
    assert sorted(made) == sorted(path.name for path in (ROOT / "crds").glob("*.yaml"))
    for name, text in made.items():
        assert text == (ROOT / "crds" / name).read_text(), f"{name}: run crds/generate.py"


def lost(want, got, path=""):
    """Paths of what `want` has and `got` has not."""
    if isinstance(want, dict) and isinstance(got, dict):
        return [bad for key, value in want.items() if value is not None
                for bad in (lost(value, got[key], f"{path}.{key}") if key in got else [f"{path}.{key}"])]
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        return [bad for i, (w, g) in enumerate(zip(want, got)) for bad in lost(w, g, f"{path}[{i}]")]
    return [] if want == got else [path]


def corpus():
    """Every graph of the corpus, as (file and name, object)."""
    for folder in ("0.9.0", "ab-guide"):
        for path in sorted((SHARED / "data/dgd" / folder).glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                if document and document["kind"] == "DynamoGraphDeployment":
                    yield pytest.param(document, id=f"{path.stem}:{document['metadata']['name']}")


@pytest.mark.api
@pytest.mark.parametrize("graph", [*corpus()] or [None])
def test_corpus_is_accepted_and_kept_whole(shared, api, graph):
    created = api.kinds()("DynamoGraphDeployment").create(
        body=graph, namespace="default", dry_run="All", field_validation="Warn")
    assert lost(graph, created.to_dict()) == []


def source(name):
    """The input of a capture: its folder is part of its name, or in its own."""
    places = [SHARED / "data/dgd/0.9.0" / name, SHARED / "data/operator/inputs-extra" / name,
              SHARED / "data/dgd" / name.replace("__", "/", 1)]
    return next(place for place in places if place.exists())


def captured():
    """For each file of the corpus: its graphs, and the components that the reference made of them."""
    for folder in ("component", "component-extra"):
        for path in sorted((SHARED / "data/operator/0.9.0" / folder).glob("*.json")):
            capture = json.loads(path.read_text())
            graphs = {document["metadata"]["name"]: document
                      for document in yaml.safe_load_all(source(capture["dgd"]).read_text())
                      if document and document["kind"] == "DynamoGraphDeployment"}
            components = [o for o in capture["objects"] if o["kind"] == "DynamoComponentDeployment"]
            if components:
                yield pytest.param(graphs, components, id=f"{folder}/{path.stem}")


def without_zeros(value):
    """The reference writes objects back from typed structs, which adds and drops empty values."""
    if isinstance(value, dict):
        inner = {key: without_zeros(v) for key, v in value.items()}
        return {key: v for key, v in inner.items() if v not in ("", {}, [], None)}
    return [without_zeros(v) for v in value] if isinstance(value, list) else value


@pytest.mark.api
@pytest.mark.parametrize("graphs, components", [*captured()] or [(None, None)])
def test_defaults_are_those_of_the_reference(shared, api, graphs, components):
    """What is stored of a graph, or a component, is what the reference's API server stored."""
    def store(kind, name, spec):
        body = {"apiVersion": "nvidia.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        return api.kinds()(kind).create(body=body, namespace="default", dry_run="All").to_dict()["spec"]
    stored = {name: store("DynamoGraphDeployment", name, graph["spec"]) for name, graph in graphs.items()}
    for component in components:
        spec = component["spec"]
        assert store("DynamoComponentDeployment", component["metadata"]["name"], spec) == spec
        graph = component["metadata"]["labels"]["nvidia.com/dynamo-graph-deployment-name"]
        service = stored[graph]["services"][spec["serviceName"]]
        if spec.get("componentType") == "planner":  # the operator sets its account
            service["extraPodSpec"]["serviceAccountName"] = spec["extraPodSpec"]["serviceAccountName"]
        for field in ("extraPodSpec", "livenessProbe", "readinessProbe", "volumeMounts", "scalingAdapter",
                      "resources", "multinode"):
            assert without_zeros(service.get(field)) == without_zeros(spec.get(field)), field


def verdicts():
    """What the reference's API server said of invalid and valid objects, its webhooks being off."""
    path = SHARED / "data/operator/validation.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        case = json.loads(line)
        if case["method"] == "POST" and case["operator"].endswith("webhooks off"):
            yield pytest.param(case, id=f"{case['resource']}:{case['rule']}".replace(" ", "-"))


def said(message):
    """The complaints of an API server in a message, without their order."""
    return sorted(re.sub(r'^\S+ "\S*" is invalid: ', "", message).strip("[]").split(", "))


@pytest.mark.api
@pytest.mark.parametrize("case", [*verdicts()] or [None])
def test_schema_decides_as_the_reference(shared, api, case):
    kind = api.kinds()(case["object"]["kind"])
    if case["code"] == 201:
        kind.create(body=case["object"], namespace="default", dry_run="All", field_validation="Warn")
        return
    with pytest.raises(ApiException) as refused:
        kind.create(body=case["object"], namespace="default", dry_run="All", field_validation="Warn")
    assert refused.value.status == case["code"] == 422
    assert said(json.loads(refused.value.body)["message"]) == said(case["message"])


@pytest.mark.parametrize("path", sorted((ROOT / "examples/dgd").glob("*.yaml")), ids=lambda path: path.stem)
def test_our_own_examples_are_accepted(api, path):
    answer = api.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", path)
    assert "dynamographdeployment" in answer.stdout and "Warning" not in answer.stderr, answer
