# SPDX-License-Identifier: Apache-2.0
"""Compares Kubernetes objects with captures of the reference operator, field by field.

What may differ stands in operator/plan/deviations.json, each entry with its reason:

    kind, name, file   shell patterns of the object and of the capture's file; absent: any
    path               shell pattern of the field's JSON pointer; absent: the whole object
    change             "absent" (the reference has it, we do not), "added" (the reverse), "value",
                       "order" (the same elements in another order)
    theirs, ours       shell patterns of the value as text
    with               "frontend-image": only where the operator replaces the Frontend's image
    why                the reason, for people

Nothing else may differ, and an entry that nothing needs is an error too.
"""

import collections
import fnmatch
import json

Difference = collections.namedtuple("Difference", "file kind name path change theirs ours")

# What the API server, its controllers and the time of day put in.
SERVER_METADATA = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")
NAMED_LISTS = ("env", "envs", "containers", "volumes", "conditions")


def normalise(thing):
    """An object as the captures show it: without identity, status and times."""
    thing = json.loads(json.dumps(thing))
    thing.pop("status", None)
    metadata = thing["metadata"]
    for key in SERVER_METADATA:
        metadata.pop(key, None)
    for owner in metadata.get("ownerReferences", []):
        owner.pop("uid", None)
    annotations = metadata.get("annotations", {})
    annotations.pop("deployment.kubernetes.io/revision", None)
    if not annotations:
        metadata.pop("annotations", None)
    spec = thing.get("spec", {})
    if thing["kind"] == "Service" and spec.get("clusterIP") != "None":
        spec.pop("clusterIP", None)
        spec.pop("clusterIPs", None)
    if thing["kind"] == "PersistentVolumeClaim":
        spec.pop("volumeName", None)
    return thing


def normalise_status(status):
    """A status without times."""
    status = json.loads(json.dumps(status or {}))
    for condition in status.get("conditions", []):
        condition.pop("lastTransitionTime", None)
    return status


def escape(key):
    return key.replace("~", "~0").replace("/", "~1")


def named(elements, key):
    """The elements by name (or type), when every one has a name of its own."""
    field = "type" if key == "conditions" else "name"
    by_name = {element.get(field): element for element in elements if isinstance(element, dict)}
    return by_name if None not in by_name and len(by_name) == len(elements) else None


def compare(theirs, ours, path=""):
    """Yields (pointer, change, theirs, ours) for every difference."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}):
            below = f"{path}/{escape(key)}"
            if key not in ours:
                yield below, "absent", theirs[key], None
            elif key not in theirs:
                yield below, "added", None, ours[key]
            else:
                yield from compare(theirs[key], ours[key], below)
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield from compare_lists(theirs, ours, path)
    elif theirs != ours or isinstance(theirs, bool) != isinstance(ours, bool):
        yield path, "value", theirs, ours


def compare_lists(theirs, ours, path):
    key = path.rsplit("/", 1)[-1]
    if key in NAMED_LISTS:
        left, right = named(theirs, key), named(ours, key)
        if left is not None and right is not None:
            yield from compare(left, right, path)
            common = [name for name in left if name in right]
            if common != [name for name in right if name in left]:
                yield path, "order", list(left), list(right)
            return
    if len(theirs) != len(ours):
        yield path, "value", theirs, ours
        return
    for i, (left, right) in enumerate(zip(theirs, ours)):
        yield from compare(left, right, f"{path}/{i}")


def compare_sets(file, theirs, ours):
    """Yields every Difference between two sets of objects, by (kind, name)."""
    for kind, name in sorted({*theirs, *ours}):
        left, right = theirs.get((kind, name)), ours.get((kind, name))
        if right is None:
            yield Difference(file, kind, name, "", "absent", left, None)
        elif left is None:
            yield Difference(file, kind, name, "", "added", None, right)
        else:
            for path, change, a, b in compare(left, right):
                yield Difference(file, kind, name, path, change, a, b)


class Deviations:
    """The table of what may differ, which remembers what was needed."""

    def __init__(self, path):
        self.entries = json.loads(path.read_text())
        self.used = set()

    def covers(self, difference, options=()):
        """Whether an entry allows it. Every entry that does counts as needed."""
        found = [i for i, entry in enumerate(self.entries) if self._matches(entry, difference, options)]
        self.used.update(found)
        return bool(found)

    @staticmethod
    def _matches(entry, difference, options):
        return (entry.get("with") in (None, *options)
                and difference.change == entry["change"]
                and fnmatch.fnmatchcase(str(difference.ours), entry.get("ours", "*"))
                and fnmatch.fnmatchcase(str(difference.theirs), entry.get("theirs", "*"))
                and fnmatch.fnmatchcase(difference.path, entry.get("path", ""))
                and fnmatch.fnmatchcase(difference.kind, entry.get("kind", "*"))
                and fnmatch.fnmatchcase(difference.name, entry.get("name", "*"))
                and fnmatch.fnmatchcase(difference.file, entry.get("file", "*")))

    def unused(self):
        return [entry for i, entry in enumerate(self.entries) if i not in self.used]


def describe(difference):
    d = difference
    return (f"{d.file}: {d.kind}/{d.name} {d.path or '(object)'}: {d.change}\n"
            f"    reference {json.dumps(d.theirs)[:400]}\n    ours      {json.dumps(d.ours)[:400]}")
