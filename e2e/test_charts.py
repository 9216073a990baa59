# SPDX-License-Identifier: Apache-2.0
"""The charts: each value has its effect, rights are minimal and suffice, releases come and go."""

import functools
import json
import subprocess

import pytest
import yaml

from conftest import ROOT, api_server, program, run

PLATFORM = ROOT / "charts/dynamo-platform"
CRDS = ROOT / "charts/dynamo-crds"
MANAGER = "dynamo-platform-dynamo-operator-controller-manager"
ACCOUNT = f"system:serviceaccount:dynamo-system:{MANAGER}"
PROMETHEUS = ("monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PodMonitor")


class Rendered:
    """What a chart makes of some values: its objects by kind and name."""

    def __init__(self, text):
        self.text = text
        self.objects = {(o["kind"], o["metadata"]["name"]): o for o in yaml.load_all(text, yaml.CSafeLoader) if o}

    def __call__(self, kind, name):
        return self.objects[kind, name]

    def __contains__(self, kind_and_name):
        return kind_and_name in self.objects

    def kinds(self):
        return {kind for kind, _ in self.objects}

    @property
    def operator(self):
        return self("Deployment", MANAGER)["spec"]

    @property
    def operator_pod(self):
        return self.operator["template"]["spec"]

    @property
    def manager(self):
        return self.operator_pod["containers"][0]

    @property
    def args(self):
        return self.manager["args"]

    @property
    def nats(self):
        return self("StatefulSet", "dynamo-platform-nats")["spec"]

    @property
    def nats_pod(self):
        return self.nats["template"]["spec"]

    @property
    def nats_conf(self):
        return self("ConfigMap", "dynamo-platform-nats-config")["data"]["nats.conf"]


@pytest.fixture(scope="session")
def render(tools):
    """Renders dynamo-platform with values given as NAME=JSON; the same again costs nothing."""
    @functools.cache
    def with_values(*values, check=True):
        options = [word for value in values for word in ("--set-json", value)]
        options += [word for version in PROMETHEUS for word in ("--api-versions", version)]
        done = run(tools / "helm", "template", "dynamo-platform", PLATFORM, "--namespace", "dynamo-system", *options,
                   check=check)
        return Rendered(done.stdout) if check else done
    return with_values


# The documented values, each set to something else than its default, and what must follow.
TOLERATION = {"key": "a", "operator": "Exists"}
AFFINITY = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
RESOURCES = {"limits": {"memory": "1Gi"}}
OP, CM = "dynamo-operator.", "dynamo-operator.controllerManager."
FILES = "nats.config.jetstream.fileStore."
RESTRICTED = [OP + "namespaceRestriction.enabled=true"]
VALUES = {
    "dynamo-crds.enabled": ([False], lambda r: "CustomResourceDefinition" not in r.kinds()),
    "dynamo-crds.takeOver": ([True], lambda r: len([k for k, _ in r.objects if k.startswith("Custom")]) == 6),
    OP + "enabled": ([False], lambda r: r.kinds() == {"ConfigMap", "Service", "StatefulSet"}),
    OP + "natsAddr": (["nats://n:1"], lambda r: "--natsAddr=nats://n:1" in r.args),
    OP + "etcdAddr": (["e:2379"], lambda r: "--etcdAddr=e:2379" in r.args),
    OP + "modelExpressURL": (["http://m"], lambda r: "--model-express-url=http://m" in r.args),
    OP + "discoveryBackend": (["etcd", OP + 'etcdAddr="e:2379"'],
                              lambda r: "--discovery-backend=etcd" in r.args),
    OP + "frontend.image": (["a/b:1"], lambda r: "--frontend-image=a/b:1" in r.args),
    OP + "frontend.override": (["Never"], lambda r: "--frontend-override=Never" in r.args),
    OP + "frontend.pullPolicy": (["Never"], lambda r: "--frontend-image-pull-policy=Never" in r.args),
    OP + "namespaceRestriction.enabled": (
        [True], lambda r: "--restrictedNamespace=dynamo-system" in r.args and "ClusterRole" not in r.kinds()
        and r("Role", "dynamo-platform-dynamo-operator-manager-role")["metadata"]["namespace"] == "dynamo-system"),
    OP + "namespaceRestriction.targetNamespace": (
        ["team", *RESTRICTED], lambda r: "--restrictedNamespace=team" in r.args
        and "--leader-election-namespace=team" in r.args
        and r("RoleBinding", "dynamo-platform-dynamo-operator-manager-rolebinding")["metadata"]["namespace"] == "team"),
    OP + "namespaceRestriction.lease.duration": (
        ["1m", *RESTRICTED], lambda r: "--namespace-scope-lease-duration=1m" in r.args),
    OP + "namespaceRestriction.lease.renewInterval": (
        ["9s", *RESTRICTED], lambda r: "--namespace-scope-lease-renew-interval=9s" in r.args),
    CM + "replicas": ([2], lambda r: r.operator["replicas"] == 2),
    CM + "tolerations": ([[TOLERATION]], lambda r: r.operator_pod["tolerations"] == [TOLERATION]),
    CM + "affinity": ([AFFINITY], lambda r: r.operator_pod["affinity"] == AFFINITY),
    CM + "nodeSelector": ([{"a": "b"}], lambda r: r.operator_pod["nodeSelector"] == {"a": "b"}),
    CM + "leaderElection.id": (
        ["me"], lambda r: "--leader-election-id=me" in r.args
        and r("Role", "dynamo-platform-dynamo-operator-leader-election-role")["rules"][1]["resourceNames"] == ["me"]),
    CM + "leaderElection.namespace": (
        ["elsewhere"], lambda r: "--leader-election-namespace=elsewhere" in r.args
        and r("Role", "dynamo-platform-dynamo-operator-leader-election-role")["metadata"]["namespace"] == "elsewhere"),
    CM + "manager.image.repository": (["r/x"], lambda r: r.manager["image"].startswith("r/x:")
                                      and f"--frontend-image={r.manager['image']}" in r.args),
    CM + "manager.image.tag": (["dev"], lambda r: r.manager["image"] == "commutator/dynamo:dev"),
    CM + "manager.image.pullPolicy": (["Always"], lambda r: r.manager["imagePullPolicy"] == "Always"),
    CM + "manager.log": (["debug"], lambda r: {"name": "DYN_LOG", "value": "debug"} in r.manager["env"]),
    CM + "manager.args": ([["--v=1"]], lambda r: r.args[-1] == "--v=1"),
    CM + "manager.resources": ([RESOURCES], lambda r: r.manager["resources"]["limits"]["memory"] == "1Gi"),
    CM + "serviceAccount.annotations": (
        [{"a": "b"}], lambda r: r("ServiceAccount", MANAGER)["metadata"]["annotations"] == {"a": "b"}),
    OP + "imagePullSecrets": ([[{"name": "s"}]], lambda r: r.operator_pod["imagePullSecrets"] == [{"name": "s"}]),
    OP + "dynamo.ingress.enabled": ([True, OP + 'dynamo.ingress.className="nginx"'],
                                    lambda r: "--ingress-controller-class-name=nginx" in r.args),
    OP + "dynamo.ingress.className": (["nginx"], lambda r: not any("ingress" in arg for arg in r.args)),
    OP + "dynamo.ingress.tlsSecretName": (
        ["t", OP + "dynamo.ingress.enabled=true", OP + 'dynamo.ingress.className="nginx"'],
        lambda r: "--ingress-controller-tls-secret-name=t" in r.args),
    OP + "dynamo.ingressHostSuffix": (["example.com"], lambda r: "--ingress-host-suffix=example.com" in r.args),
    OP + "dynamo.metrics.prometheusEndpoint": (["http://p"], lambda r: "--prometheus-endpoint=http://p" in r.args),
    OP + "dynamo.components.serviceAccount.annotations": (
        [{"a": "b"}],
        lambda r: r("ServiceAccount", "dynamo-platform-dynamo-operator-component")["metadata"]["annotations"] == {"a": "b"}),
    OP + "metricsService.type": (
        ["NodePort"], lambda r: r("Service", "dynamo-platform-dynamo-operator")["spec"]["type"] == "NodePort"),
    OP + "metricsService.port": (
        [81], lambda r: r("Service", "dynamo-platform-dynamo-operator")["spec"]["ports"][0]["port"] == 81),
    "nats.enabled": ([False], lambda r: "StatefulSet" not in r.kinds()
                     and not any(arg.startswith("--natsAddr") for arg in r.args)),
    "nats.container.image.repository": (["nats"], lambda r: r.nats_pod["containers"][0]["image"] == "nats:2.10.29"),
    "nats.container.image.tag": (["9"], lambda r: r.nats_pod["containers"][0]["image"] == "commutator/nats:9"),
    "nats.container.image.pullPolicy": (
        ["Always"], lambda r: r.nats_pod["containers"][0]["imagePullPolicy"] == "Always"),
    FILES + "size": (["1Gi", FILES + "pvc.enabled=true"], lambda r: "max_file_store: 1Gi" in r.nats_conf
                     and r.nats["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "1Gi"),
    FILES + "pvc.enabled": ([True], lambda r: r.nats["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
                            and [v["name"] for v in r.nats_pod["volumes"]] == ["config"]),
    FILES + "pvc.storageClassName": (
        ["fast", FILES + "pvc.enabled=true"],
        lambda r: r.nats["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"),
    "nats.config.jetstream.memoryStore.size": (["1Mi"], lambda r: "max_memory_store: 1Mi" in r.nats_conf),
    "nats.config.maxPayload": ([1048576], lambda r: "max_payload: 1048576\n" in r.nats_conf),
    "nats.resources": ([RESOURCES], lambda r: r.nats_pod["containers"][0]["resources"]["limits"]["memory"] == "1Gi"),
    "nats.tolerations": ([[TOLERATION]], lambda r: r.nats_pod["tolerations"] == [TOLERATION]),
    "nats.affinity": ([AFFINITY], lambda r: r.nats_pod["affinity"] == AFFINITY),
    "nats.nodeSelector": ([{"a": "b"}], lambda r: r.nats_pod["nodeSelector"] == {"a": "b"}),
}
REFUSED = {  # value -> what the message must name
    "etcd.enabled=true": "etcd.enabled: this chart does not bring etcd",
    "grove.enabled=true": "grove.enabled: this chart does not bring grove",
    "kai-scheduler.enabled=true": "kai-scheduler.enabled: this chart does not bring kai-scheduler",
    "natss.enabled=true": "natss",
    OP + "enabled=1": "/dynamo-operator/enabled",
    OP + "natsAddr=\"host:4222\"": "/dynamo-operator/natsAddr",
    OP + "discoveryBackend=\"consul\"": "'kubernetes', 'etcd'",
    OP + "discoveryBackend=\"etcd\"": "dynamo-operator.etcdAddr: needed",
    OP + "frontend.override=\"Always\"": "'Auto', 'Never'",
    OP + "namespaceRestriction.targetNamespace=\"A B\"": "targetNamespace",
    OP + "namespaceRestriction.lease.duration=30": "/lease/duration",
    CM + "replicas=-1": "/controllerManager/replicas",
    CM + "manager.image.tags=\"x\"": "'tags' not allowed",
    CM + "manager.args=[\"x\"]": "/manager/args/0",
    OP + "dynamo.ingress.enabled=true": "className",
    OP + "metricsService.port=0": "/metricsService/port",
    "nats.config.maxPayload=\"15MB\"": "/maxPayload",
    FILES + "size=\"ten\"": "/fileStore/size",
    "dynamo-crds.takeover=true": "'takeover' not allowed",
}


def leaves(value, path=""):
    """Paths of a values file that hold something other than a further map of defaults."""
    if isinstance(value, dict) and value and not path.endswith("resources"):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path


def granted(rendered, kinds=("Role", "ClusterRole")):
    """Every (group, resource, verb) that the roles of a chart give."""
    return {(group, resource, verb) for (kind, _), role in rendered.objects.items() if kind in kinds
            for rule in role["rules"] for group in rule["apiGroups"]
            for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize("chart", [PLATFORM, CRDS], ids=["platform", "crds"])
def test_lint(tools, chart):
    assert "0 chart(s) failed" in run(tools / "helm", "lint", "--strict", chart).stdout


def test_every_documented_value_is_tested():
    documented = set(leaves(yaml.safe_load((PLATFORM / "values.yaml").read_text())))
    assert documented == set(VALUES) | {"etcd.enabled", "grove.enabled", "kai-scheduler.enabled"}


# Values that alone change nothing, or nothing that shows without a cluster.
DORMANT = (OP + "dynamo.ingress.className", "dynamo-crds.takeOver")


@pytest.mark.parametrize("value", VALUES)
def test_value(render, value):
    (wanted, *others), holds = VALUES[value]
    if not value.startswith("dynamo-crds"):
        others.append("dynamo-crds.enabled=false")  # they take a second to render
    assert holds(render(*others, f"{value}={json.dumps(wanted)}"))
    if value not in DORMANT:
        try:
            assert not holds(render(*others))
        except KeyError:
            pass  # the field is not there at all without the value


@pytest.mark.parametrize("value", REFUSED)
def test_bad_value_is_refused(render, value):
    done = render(value, check=False)
    assert done.returncode != 0
    assert REFUSED[value] in done.stderr


def test_values_of_the_reference_without_use_here_are_accepted(render):
    render("dynamo-crds.enabled=false", OP + "webhook.enabled=true", OP + 'dynamo.groveTerminationDelay="4h"', OP + "nats.enabled=true",
           CM + 'kubeRbacProxy.image.tag="v1"', OP + 'dynamo.mpiRun.secretName="s"')


def test_names(render):
    """Scripts, dashboards and webhooks of others know these."""
    name = "dynamo-platform-dynamo-operator"
    assert set(render().objects) >= {
        ("Deployment", f"{name}-controller-manager"), ("ServiceAccount", f"{name}-controller-manager"),
        ("ServiceAccount", f"{name}-component"), ("ClusterRole", f"{name}-manager-role"),
        ("ClusterRole", f"{name}-planner"), ("ClusterRoleBinding", f"{name}-manager-rolebinding"), ("Role", f"{name}-leader-election-role"),
        ("Service", name), ("StatefulSet", "dynamo-platform-nats"), ("Service", "dynamo-platform-nats"),
        ("ServiceMonitor", f"{name}-operator"), ("PodMonitor", "dynamo-frontend"),
        ("PodMonitor", "dynamo-worker")}


def test_monitors_need_prometheus(tools):
    plain = Rendered(run(tools / "helm", "template", "x", PLATFORM).stdout)
    assert not {"ServiceMonitor", "PodMonitor"} & plain.kinds()


def test_pods_have_no_privileges(render):
    for pod in (render().operator_pod, render().nats_pod):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]}}
            assert container["livenessProbe"] and container["readinessProbe"]
            assert container["resources"]["limits"]["memory"]


def test_rights_name_everything_they_give(render):
    rights = granted(render())
    assert not [right for right in rights if "*" in right]
    assert not {verb for _, _, verb in rights} & {"escalate", "bind", "impersonate", "deletecollection"}
    assert {verb for _, resource, verb in rights if resource == "secrets"} == {"list", "watch"}
    assert {verb for _, resource, verb in rights if resource == "persistentvolumeclaims"} == {
        "get", "list", "watch", "create"}


def test_restricted_install_has_no_cluster_rights(render):
    rendered = render(*RESTRICTED)
    assert not {kind for kind in rendered.kinds() if kind.startswith("ClusterRole")}
    assert {o["metadata"].get("namespace") for (kind, _), o in rendered.objects.items()
            if kind != "CustomResourceDefinition"} == {"dynamo-system"}
    wide, narrow = granted(render(), ("ClusterRole",)), granted(rendered)
    assert {right for right in wide ^ narrow if right[1] != "leases"} == {
        ("nvidia.com", "dynamographdeploymentscalingadapters/scale", "patch")}  # for planners


# --- on an API server ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(tools):
    """An API server that nothing has been installed on."""
    with api_server(tools) as kube:
        yield kube


def install(kube, release, chart, namespace, *options, **rest):
    return kube.helm("upgrade", "--install", release, chart, "--namespace", namespace, "--create-namespace",
                     *options, **rest)


def uninstall(kube, release, namespace):
    return kube.helm("uninstall", release, "--namespace", namespace)


def definition(kube, name="dynamographdeployments.nvidia.com"):
    return json.loads(kube.kubectl("get", "crd", name, "-o", "json").stdout)


def owner(crd):
    return crd["metadata"]["annotations"].get("meta.helm.sh/release-name")


def without_definitions(kube):
    """The server may lose sight of a definition that is deleted while another of its controllers writes to it, and
    looks at all of them only every five minutes: a change makes it look at once."""
    kube.kubectl("delete", "crd", "--all", "--wait=false")
    for attempt in range(10):
        if kube.kubectl("wait", "--for=delete", "crd", "--all", "--timeout=10s", check=False).returncode == 0:
            return
        kube.kubectl("annotate", "crd", "--all", "--overwrite", f"look={attempt}", check=False)
    pytest.fail("definitions that were deleted are still there")


@pytest.mark.api
def test_one_chart_brings_the_definitions_and_updates_them(bare):
    without_definitions(bare)
    notes = install(bare, "dynamo-platform", PLATFORM, "dynamo-system").stdout
    assert "kubectl get dgd" in notes
    crd = definition(bare)
    assert owner(crd) == "dynamo-platform"
    # An older release of ours lacked this column.
    bare.kubectl("patch", "crd", crd["metadata"]["name"], "--type=json", "-p",
                 '[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns/1"}]')
    install(bare, "dynamo-platform", PLATFORM, "dynamo-system", "--set", CM + "replicas=0")
    assert definition(bare)["spec"] == crd["spec"]
    uninstall(bare, "dynamo-platform", "dynamo-system")
    assert definition(bare)["spec"] == crd["spec"], "definitions must outlive the release"
    install(bare, "dynamo-platform", PLATFORM, "dynamo-system")
    uninstall(bare, "dynamo-platform", "dynamo-system")


@pytest.mark.api
def test_definitions_of_another_release_are_left_alone(bare):
    without_definitions(bare)
    install(bare, "dynamo-crds", CRDS, "default")
    before = definition(bare)
    install(bare, "dynamo-platform", PLATFORM, "dynamo-system")
    after = definition(bare)
    assert owner(after) == "dynamo-crds"
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    install(bare, "dynamo-platform", PLATFORM, "dynamo-system", "--set", "dynamo-crds.takeOver=true",
            "--take-ownership")
    assert owner(definition(bare)) == "dynamo-platform"
    uninstall(bare, "dynamo-platform", "dynamo-system")
    uninstall(bare, "dynamo-crds", "default")
    assert owner(definition(bare)) == "dynamo-platform"


@pytest.mark.api
def test_second_operator(bare):
    """One operator per cluster, and any number of restricted ones beside it."""
    install(bare, "dynamo-platform", PLATFORM, "dynamo-system")
    refused = install(bare, "second", PLATFORM, "other", check=False)
    assert refused.returncode != 0
    assert "already has a cluster-wide operator" in refused.stderr
    install(bare, "second", PLATFORM, "team", "--set", OP + "namespaceRestriction.enabled=true")
    uninstall(bare, "second", "team")
    uninstall(bare, "dynamo-platform", "dynamo-system")


@pytest.mark.api
def test_uninstall_leaves_nothing_but_definitions(bare):
    def everything():
        names = bare.kubectl("api-resources", "--verbs=list,create", "-o", "name").stdout.split()
        wanted = ",".join(name for name in names if not name.startswith("events"))
        return set(bare.kubectl("get", wanted, "--all-namespaces", "-o", "name").stdout.split())
    bare.apply_crds()
    bare.kubectl("create", "namespace", "fleeting")
    before = everything()
    install(bare, "x", PLATFORM, "fleeting")
    assert "deployment.apps/x-dynamo-operator-controller-manager" in everything() - before
    uninstall(bare, "x", "fleeting")
    assert everything() == before


@pytest.mark.api
def test_server_accepts_every_object(bare, render):
    """Strictly: a misspelt field of a manifest would otherwise go unnoticed."""
    bare.apply_crds()
    bare.kubectl("create", "namespace", "dynamo-system", check=False)
    for values in ([], RESTRICTED, [FILES + "pvc.enabled=true", OP + 'imagePullSecrets=[{"name":"s"}]']):
        objects = [o for o in render(*values).objects.values()
                   if o["kind"] not in ("ServiceMonitor", "PodMonitor", "CustomResourceDefinition")]
        bare.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-",
                     input=yaml.safe_dump_all(objects))


DISCOVERY_RULES = [  # what component pods get: operator.md 2.12, and the routing ConfigMap
    {"apiGroups": [""], "resources": ["endpoints"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["nvidia.com"], "resources": ["dynamoworkermetadatas"],
     "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]


@pytest.mark.api
@pytest.mark.parametrize("namespace, options", [("any", []), ("dynamo-system", ["--set", RESTRICTED[0]])],
                         ids=["cluster-wide", "restricted"])
def test_operator_may_hand_on_its_rights_and_no_more(bare, namespace, options):
    bare.kubectl("create", "namespace", namespace, check=False)
    install(bare, "dynamo-platform", PLATFORM, "dynamo-system", *options)

    def grant(rules):
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "discovery", "namespace": namespace}, "rules": rules}
        return bare.kubectl("create", "--dry-run=server", "--as", ACCOUNT, "-f", "-",
                            input=json.dumps(role), check=False)
    assert grant(DISCOVERY_RULES).returncode == 0, grant(DISCOVERY_RULES).stderr
    refused = grant([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]}])
    assert "attempting to grant RBAC permissions not currently held" in refused.stderr
    planner = bare.kubectl("create", "rolebinding", "planner", "--dry-run=server", "--as", ACCOUNT, "-n", namespace,
                           "--clusterrole", "dynamo-platform-dynamo-operator-planner",
                           "--serviceaccount", f"{namespace}:planner-serviceaccount", check=False)
    assert (planner.returncode == 0) == (not options), planner.stderr
    uninstall(bare, "dynamo-platform", "dynamo-system")


def as_account(kube, account, namespace, path):
    """A kubeconfig that is this service account."""
    view = json.loads(kube.kubectl("config", "view", "--raw", "-o", "json").stdout)
    token = kube.kubectl("create", "token", account, "-n", namespace).stdout.strip()
    view["users"] = [{"name": user["name"], "user": {"token": token}} for user in view["users"]]
    path.write_text(json.dumps(view))
    return path


def loopback(argument):
    """An argument of the chart for a process beside others: no ports that are taken."""
    return "--metrics-bind-address=0" if "metrics-bind" in argument else \
        "--health-probe-bind-address=0" if "health-probe" in argument else argument


@pytest.mark.api
@pytest.mark.parametrize("namespace, options", [("graphs", []), ("dynamo-system", ["--set", RESTRICTED[0]])],
                         ids=["cluster-wide", "restricted"])
def test_rights_suffice(shared, bare, tmp_path, namespace, options):
    """Our operator as the chart's account, with the chart's arguments: nothing may be forbidden."""
    binary = program("dynamo-operator")
    bare.kubectl("create", "namespace", namespace, check=False)
    install(bare, "dynamo-platform", PLATFORM, "dynamo-system", *options)
    with (tmp_path / "log").open("w+") as log:
        manager = bare.kubectl("get", "deployment", MANAGER, "-n", "dynamo-system", "-o", "json").stdout
        arguments = json.loads(manager)["spec"]["template"]["spec"]["containers"][0]["args"]
        kubeconfig = as_account(bare, MANAGER, "dynamo-system", tmp_path / "kubeconfig")
        with subprocess.Popen([binary, f"--kubeconfig={kubeconfig}", *map(loopback, arguments)],
                              stdout=log, stderr=log) as operator:
            try:
                work(bare, shared, namespace)
            finally:
                operator.terminate()
        log.seek(0)
        text = log.read()
    uninstall(bare, "dynamo-platform", "dynamo-system")
    assert "forbidden" not in text.lower() and operator.returncode == 0, text


def work(kube, shared, namespace):
    """Graphs come, change, are meddled with and go."""
    for folder in ("dgd/0.9.0", "operator/inputs-extra"):
        kube.kubectl("apply", "-n", namespace, "-f", shared / "data" / folder, "--validate=warn", check=False)
    graphs = kube.until("DynamoGraphDeployment", namespace, lambda graphs: len(graphs) > 60 and all(
        graph.get("status", {}).get("state") for graph in graphs.values()))
    # At once, where kubectl delete --all would take a minute.
    for path in (f"apis/apps/v1/namespaces/{namespace}/deployments", f"api/v1/namespaces/{namespace}/services"):
        kube.kubectl("delete", "--raw", f"/{path}")
    kube.until("Deployment", namespace, lambda made: len(made) > len(graphs), api_version="apps/v1")
    kube.kubectl("patch", "dgd", "x-env", "-n", namespace, "--type=merge", "-p",
                 '{"spec":{"envs":[{"name":"DYN_ROUTER_MODE","value":"kv"}]}}')
    kube.kubectl("delete", "--raw", f"/apis/nvidia.com/v1alpha1/namespaces/{namespace}/dynamographdeployments")
    kube.until("DynamoGraphDeployment", namespace, lambda graphs: not graphs)


# --- on the cluster -----------------------------------------------------------------------------------


@pytest.mark.cluster
def test_install_upgrade_uninstall(cluster):
    """Runs beside an installed platform: restricted to a namespace of its own."""
    restricted = ("--set", OP + "namespaceRestriction.enabled=true", "--set", CM + "manager.image.tag=dev")
    install(cluster, "passing", PLATFORM, "chart-test", *restricted, "--wait", "--timeout=120s")
    pods = json.loads(cluster.kubectl("get", "pods", "-n", "chart-test", "-o", "json").stdout)["items"]
    assert sorted(pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods) == ["dynamo-operator", "nats"]
    assert all(status["ready"] and status["restartCount"] == 0
               for pod in pods for status in pod["status"]["containerStatuses"])
    nats = next(pod["metadata"]["uid"] for pod in pods if "nats" in pod["metadata"]["name"])
    install(cluster, "passing", PLATFORM, "chart-test", *restricted, "--set", CM + "replicas=2",
            "--wait", "--timeout=120s")
    pods = json.loads(cluster.kubectl("get", "pods", "-n", "chart-test", "-o", "json").stdout)["items"]
    assert nats in [pod["metadata"]["uid"] for pod in pods], "NATS must survive an upgrade of something else"
    cluster.helm("uninstall", "passing", "--namespace", "chart-test", "--wait", "--timeout=120s")
    cluster.kubectl("delete", "namespace", "chart-test", "--wait=true", "--timeout=120s")
