# SPDX-License-Identifier: Apache-2.0
"""A small vocabulary for writing structural schemas.

Each function returns one OpenAPI v3 schema as a plain dictionary, in the subset that a
CustomResourceDefinition accepts. Types of Kubernetes itself are not written down again:
`core()` derives them from the OpenAPI documents of a running API server.
"""

import copy
import json
import subprocess

QUANTITY = (r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
            r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$")

REQUIRED = object()  # key that marks a property, taken out again by obj()


def schema(kind, doc, **rest):
    return ({"description": doc} if doc else {}) | rest | {"type": kind}


def string(doc="", **rest):
    return schema("string", doc, **rest)


def enum(doc, *values, **rest):
    return string(doc, enum=list(values), **rest)


def boolean(doc="", **rest):
    return schema("boolean", doc, **rest)


def integer(doc="", **rest):
    return schema("integer", doc, **rest)


def int32(doc="", **rest):
    return integer(doc, format="int32", **rest)


def int64(doc="", **rest):
    return integer(doc, format="int64", **rest)


def number(doc="", **rest):
    return schema("number", doc, **rest)


def time(doc=""):
    return string(doc, format="date-time")


def int_or_string(doc="", **rest):
    """Has no `type`: a value of either JSON type is what it is for."""
    either = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    return ({"description": doc} if doc else {}) | either | rest


def quantity(doc=""):
    return int_or_string(doc, pattern=QUANTITY)


def array(doc, items, **rest):
    return schema("array", doc, items=items, **rest)


def mapping(doc, values, **rest):
    return schema("object", doc, additionalProperties=values, **rest)


def strings(doc=""):
    return mapping(doc, string())


def req(prop):
    """Marks a property as required in the object that holds it."""
    return prop | {REQUIRED: True}


def rule(expression, message):
    """A CEL validation rule."""
    return {"rule": expression, "message": message}


def obj(doc="", rules=(), extra=None, **props):
    """An object with these properties; `extra` adds keywords such as x-kubernetes-*."""
    required = sorted(name for name, prop in props.items() if prop.get(REQUIRED))
    props = {name: {k: v for k, v in prop.items() if k is not REQUIRED}
             for name, prop in sorted(props.items())}
    out = schema("object", doc, **(extra or {}))
    if props:
        out["properties"] = props
    if required:
        out["required"] = required
    if rules:
        out["x-kubernetes-validations"] = list(rules)
    return out


def free(doc, **props):
    """An object whose unknown fields are kept."""
    return obj(doc, extra={"x-kubernetes-preserve-unknown-fields": True}, **props)


class Core:
    """Schemas of the API server's own types, from what it serves under /openapi/v3."""

    DOCUMENTS = ("api/v1", "apis/autoscaling/v2")
    KEPT = ("type", "format", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
            "x-kubernetes-map-type")

    def __init__(self, kubectl):
        self.schemas = {}
        for document in self.DOCUMENTS:
            raw = subprocess.run([*kubectl, "get", "--raw", f"/openapi/v3/{document}"],
                                 check=True, stdout=subprocess.PIPE).stdout
            self.schemas |= json.loads(raw)["components"]["schemas"]

    def __call__(self, name, doc=""):
        """The type `name` (such as core.v1.Probe) with `doc` as its only description."""
        out = copy.deepcopy(self._convert({"$ref": f"io.k8s.api.{name}"}))
        return ({"description": doc} if doc else {}) | out

    def _convert(self, node):
        if "allOf" in node:  # how a property that carries its own text refers to a type
            node = node["allOf"][0]
        if "$ref" in node:
            return self._named(node["$ref"].rsplit("/", 1)[-1])
        out = {key: node[key] for key in self.KEPT if key in node}
        if "properties" in node:
            out["properties"] = {name: self._property(node, name) for name in sorted(node["properties"])}
        for key in ("items", "additionalProperties"):
            if key in node:
                out[key] = self._convert(node[key])
        return out

    def _named(self, name):
        short = name.rsplit(".", 1)[-1]
        if short == "Quantity":
            return quantity()
        if short == "IntOrString":
            return int_or_string()
        if short == "ObjectMeta":  # an embedded template's: the server fills in the rest itself
            return obj(annotations=strings(), finalizers=array("", string()), labels=strings(),
                       name=string(), namespace=string())
        return self._convert(self.schemas[name])

    def _property(self, parent, name):
        """A property with its default. The document also gives required fields and whole objects
        their zero value as default, which says nothing: such a default would make them optional."""
        prop = parent["properties"][name]
        out = self._convert(prop)
        if "default" in prop and prop["default"] != {} and name not in parent.get("required", []):
            out = out | {"default": prop["default"]}
        return out
