#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the CustomResourceDefinitions of this folder.

    crds/generate.py [--kubectl KUBECTL] [--out DIRECTORY]

`KUBECTL` must reach an API server of the Kubernetes version that we build for: the pod types
come from it (see schema.py). The output is committed; a test compares it with a fresh one.
"""

import argparse
import pathlib
import shlex

import yaml

from schema import (Core, array, boolean, enum, free, int32, int64, integer, mapping,
                    number, obj, quantity, req, rule, string, strings, time)

HERE = pathlib.Path(__file__).parent
GROUP, VERSION = "nvidia.com", "v1alpha1"
FRAMEWORKS = ("sglang", "vllm", "trtllm")
IDENTITY_FRAMEWORKS = ("vllm", "sglang", "trtllm")

PVC_RULE = rule(
    "!has(self.create) || self.create == false || "
    "(has(self.size) && has(self.storageClass) && has(self.volumeAccessMode))",
    "When create is true, size, storageClass, and volumeAccessMode are required")
CHECKPOINT_RULE = rule(
    "!self.enabled || (has(self.checkpointRef) && size(self.checkpointRef) > 0) || "
    "(has(self.identity) && has(self.identity.model) && has(self.identity.backendFramework))",
    "An enabled checkpoint needs checkpointRef, or identity with model and backendFramework")


def conditions():
    dns_label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    return array("What is true of the object now, one entry per type.", obj(
        "One observed fact.",
        type=req(string("Name of the fact.", maxLength=316,
                        pattern=rf"^({dns_label}(\.{dns_label})*/)?"
                                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$")),
        status=req(enum("Whether it holds.", "True", "False", "Unknown")),
        reason=req(string("The cause in one word, for programs.", minLength=1, maxLength=1024,
                          pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")),
        message=req(string("The cause in a sentence, for people.", maxLength=32768)),
        lastTransitionTime=req(time("When status last changed.")),
        observedGeneration=int64("Generation of the spec this was seen for.", minimum=0)))


def amounts(doc):
    return obj(doc,
               cpu=string("CPU, as a Kubernetes quantity."),
               memory=string("Memory, as a Kubernetes quantity."),
               gpu=string("Number of GPUs."),
               gpuType=string("Resource name of the GPUs; nvidia.com/gpu when empty."),
               custom=strings("Any further resources by name."))


def epp_config():
    plugins = array("Plugins to load.", obj(
        "One plugin.",
        name=string("Name to refer to it by; its type when empty."),
        parameters=string("Settings of the plugin.", format="byte"),
        type=req(string("Kind of plugin."))))
    profiles = array("Sets of plugins, one of which handles a request.", obj(
        "One set.",
        name=req(string("Name of the set.")),
        plugins=req(array("Plugins of the set.", obj(
            "A plugin in use.",
            pluginRef=req(string("Name of a loaded plugin.")),
            weight=integer("Weight of its score."))))))
    return free("The endpoint picker's configuration, given here.",
                apiVersion=string("Version of the configuration's format."),
                kind=string("Kind of the configuration."),
                featureGates=array("Features to switch on.", string()),
                plugins=req(plugins),
                schedulingProfiles=req(profiles),
                saturationDetector=obj(
                    "When a worker counts as full.",
                    kvCacheUtilThreshold=number("Share of its KV cache in use."),
                    metricsStalenessThreshold=string("Age from which its figures are not trusted."),
                    queueDepthThreshold=integer("Number of waiting requests.")))


def checkpoint():
    return obj("Start from a saved process image.", [CHECKPOINT_RULE],
               enabled=boolean("Whether to use one.", default=False),
               mode=enum("Make the checkpoint when missing (Auto), or never (Manual).",
                         "Auto", "Manual", default="Auto"),
               checkpointRef=string("Name of an existing checkpoint."),
               identity=obj(
                   "What the process must have been started with.",
                   model=req(string("Model name.")),
                   backendFramework=req(enum("Engine.", *IDENTITY_FRAMEWORKS)),
                   dynamoVersion=string("Dynamo release."),
                   dtype=string("Number format of the weights."),
                   maxModelLen=int32("Longest context, in tokens.", minimum=1),
                   tensorParallelSize=int32("Tensor parallel size.", default=1, minimum=1),
                   pipelineParallelSize=int32("Pipeline parallel size.", default=1, minimum=1),
                   extraParameters=strings("Further settings that must be equal.")))


def pod_spec(core):
    spec = core("core.v1.PodSpec", "Fields of the pod, merged over the generated ones. Entries of "
                                   "containers are sidecars.")
    spec["properties"]["mainContainer"] = core(
        "core.v1.Container", "Fields of the component's own container, merged over the generated ones.")
    spec["properties"] = dict(sorted(spec["properties"].items()))
    container = spec["properties"]["mainContainer"]
    for schema, optional in ((spec, "containers"), (container, "name")):
        schema["required"].remove(optional)
        if not schema["required"]:
            del schema["required"]
    return spec


def component(core):
    """Properties of one component: an entry of a graph's services, or most of a DCD's spec."""
    return dict(
        annotations=strings("Annotations of the generated objects."),
        labels=strings("Labels of the generated objects."),
        serviceName=string("Key of the component in its graph; set by the operator."),
        componentType=string("What the component is: frontend, worker, prefill, decode, planner, epp "
                             "or any other word for a plain container."),
        subComponentType=string("Role of a worker in disaggregated serving: prefill or decode."),
        dynamoNamespace=string("No longer used: the namespace follows from the graph."),
        globalDynamoNamespace=boolean("Use the Dynamo namespace that all graphs share."),
        resources=obj("Resources of the main container.",
                      requests=amounts("What is set aside for it."),
                      limits=amounts("What it may use. GPUs are read from here."),
                      claims=array("Dynamic resource claims.", core("core.v1.ResourceClaim"))),
        autoscaling=obj("No longer used: see scalingAdapter.",
                        enabled=boolean(), minReplicas=integer(), maxReplicas=integer(),
                        behavior=core("autoscaling.v2.HorizontalPodAutoscalerBehavior"),
                        metrics=array("", core("autoscaling.v2.MetricSpec"))),
        envs=array("Environment, stronger than any other source.", core("core.v1.EnvVar")),
        envFromSecret=string("Secret whose keys become environment variables."),
        volumeMounts=array("PVCs to mount.", obj(
            "One mount.",
            name=req(string("Name of the PVC.")),
            mountPoint=string("Path in the container."),
            useAsCompilationCache=boolean("Whether the engine keeps its compiled kernels there.",
                                          default=False))),
        ingress=obj("How the component is reached from outside.",
                    enabled=boolean("Whether to create an Ingress or VirtualService."),
                    host=string("Host name, without prefix and suffix."),
                    hostPrefix=string("Put before the host name."),
                    hostSuffix=string("Domain put after the host name."),
                    annotations=strings("Annotations of the Ingress."),
                    labels=strings("Labels of the Ingress."),
                    tls=obj("TLS of the host.", secretName=string("Secret with the certificate.")),
                    ingressControllerClassName=string("Ingress class."),
                    useVirtualService=boolean("Create an Istio VirtualService instead."),
                    virtualServiceGateway=string("Gateway of the VirtualService.")),
        modelRef=obj("Base model that the component serves.",
                     name=req(string("Model name.")), revision=string("Model revision.")),
        sharedMemory=obj("The memory file system at /dev/shm.",
                         disabled=boolean("Mount none."), size=quantity("Its limit.")),
        extraPodMetadata=obj("Metadata of the pods.",
                             annotations=strings("Annotations of the pods."),
                             labels=strings("Labels of the pods.")),
        extraPodSpec=pod_spec(core),
        livenessProbe=core("core.v1.Probe", "Replaces the generated liveness probe."),
        readinessProbe=core("core.v1.Probe", "Replaces the generated readiness probe."),
        replicas=int32("Number of instances; one when absent.", minimum=0),
        multinode=obj("Spread one instance over several nodes.",
                      nodeCount=req(int32("Number of nodes.", default=2, minimum=2))),
        scalingAdapter=obj("Let a DynamoGraphDeploymentScalingAdapter own the replicas.",
                           enabled=boolean("Whether to create one.", default=False)),
        eppConfig=obj("Configuration of an endpoint picker: exactly one of the two.",
                      configMapRef=core("core.v1.ConfigMapKeySelector", "A ConfigMap that holds it."),
                      config=epp_config()),
        checkpoint=checkpoint())


def replica_status(doc):
    return obj(doc,
               componentKind=req(enum("Kind of the object that runs the pods.", "PodClique",
                                      "PodCliqueScalingGroup", "Deployment", "LeaderWorkerSet")),
               componentName=req(string("Name of that object.")),
               replicas=req(int32("Instances that exist.", minimum=0)),
               updatedReplicas=req(int32("Instances of the current spec.", minimum=0)),
               readyReplicas=int32("Instances that are ready.", minimum=0),
               availableReplicas=int32("Instances that stayed ready long enough.", minimum=0))


def graph(core):
    spec = obj(
        "The graph as wished for.",
        services=mapping("Components by name.", obj("One component.", **component(core)), maxProperties=25),
        envs=array("Environment of every component.", core("core.v1.EnvVar")),
        pvcs=array("PVCs that components may mount.", obj(
            "One PVC.", [PVC_RULE],
            name=req(string("Its name.")),
            create=boolean("Create it when missing; otherwise it must exist."),
            size=quantity("Size of a created one."),
            storageClass=string("Storage class of a created one."),
            volumeAccessMode=string("Access mode of a created one.")), maxItems=100),
        backendFramework=enum("Engine of the workers; read from their command when absent.", *FRAMEWORKS),
        restart=obj("Asks for a restart.",
                    id=req(string("A new value starts it.", minLength=1)),
                    strategy=obj("In which order.",
                                 type=enum("One after another, or all at once.",
                                           "Sequential", "Parallel", default="Sequential"),
                                 order=array("Every component, first to last.", string()))))
    status = obj(
        "The graph as it is.",
        state=string("pending, successful or failed."),
        conditions=conditions(),
        services=mapping("Replicas by component.", replica_status("Replicas of one component.")),
        restart=obj("Progress of the last restart.",
                    observedID=string("Its id."),
                    phase=string("Pending, Restarting, Completed or Failed."),
                    inProgress=array("Components being restarted.", string())),
        checkpoints=mapping("Checkpoints by component.", obj(
            "One checkpoint.",
            checkpointName=string("Its name."), identityHash=string("Hash of its identity."),
            ready=boolean("Whether it can be used."))))
    return dict(kind="DynamoGraphDeployment", short="dgd", spec=spec, status=status,
                doc="A served model as a graph of components: frontend, workers and helpers.",
                columns=[column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
                         column("Backend", ".spec.backendFramework"), age()])


def component_deployment(core):
    spec = obj("The component as wished for.", **component(core),
               backendFramework=enum("Engine of the component.", *FRAMEWORKS))
    status = obj("The component as it is.",
                 conditions=req(conditions()),
                 observedGeneration=int64("Generation of the spec last acted on."),
                 podSelector=strings("Labels of the component's pods."),
                 service=replica_status("Replicas of the component."))
    return dict(kind="DynamoComponentDeployment", short="dcd", spec=spec, status=status,
                doc="One component of a graph; the operator makes one for each of its services.",
                columns=[column("DynamoComponent", ".spec.dynamoComponent"),
                         column("Available", ".status.conditions[?(@.type=='Available')].status"),
                         column("Backend", ".spec.backendFramework"), age()])


def worker_metadata(_core):
    spec = obj("What the pod has registered.", data=req(free(
        "Its endpoints, model cards and event channels by key.")))
    return dict(kind="DynamoWorkerMetadata", plural="dynamoworkermetadatas", short="dwm", spec=spec,
                doc="What one running pod offers; the pod writes and owns it.", columns=[age()])


def scaling_adapter(_core):
    spec = obj("The scale as wished for.",
               replicas=req(int32("Number of instances.", minimum=0)),
               dgdRef=req(obj("The component to scale.",
                              name=req(string("Name of the graph.", minLength=1)),
                              serviceName=req(string("Key of the component in it.", minLength=1)))))
    status = obj("The scale as it is.",
                 replicas=int32("Number of instances asked of the graph."),
                 selector=string("Label selector of the component's pods."),
                 lastScaleTime=time("When it last changed."))
    return dict(kind="DynamoGraphDeploymentScalingAdapter", short="dgdsa", spec=spec, status=status,
                doc="The scale subresource of one component, for autoscalers.",
                scale={"labelSelectorPath": ".status.selector", "specReplicasPath": ".spec.replicas",
                       "statusReplicasPath": ".status.replicas"},
                columns=[column("DGD", ".spec.dgdRef.name"), column("SERVICE", ".spec.dgdRef.serviceName"),
                         column("REPLICAS", ".status.replicas", "integer"), age("AGE")])


def model(_core):
    spec = obj("The model as wished for.",
               modelName=req(string("Name that requests use.")),
               baseModelName=req(string("Model that the workers have loaded.")),
               modelType=enum("What it is.", "base", "lora", "adapter", default="base"),
               source=obj("Where its weights are.", uri=req(string("s3:// or hf:// address."))))
    status = obj("The model as it is.",
                 conditions=conditions(),
                 endpoints=array("Workers that serve it.", obj(
                     "One worker.",
                     address=req(string("Address of its system port.")),
                     podName=string("Its pod."), ready=req(boolean("Whether it has the model loaded.")))),
                 readyEndpoints=req(integer("Number of ready ones.")),
                 totalEndpoints=req(integer("Number of all.")))
    return dict(kind="DynamoModel", short="dm", spec=spec, status=status,
                doc="A model, or an adapter of one, on the workers that can serve it.",
                columns=[column("BaseModel", ".spec.baseModelName"), column("Type", ".spec.modelType"),
                         column("Ready", ".status.readyEndpoints", "integer"),
                         column("Total", ".status.totalEndpoints", "integer"), age()])


def graph_request(core):
    spec = obj(
        "What is asked for.",
        model=req(string("Model to serve.")),
        backend=req(enum("Engine to serve it with.", *IDENTITY_FRAMEWORKS)),
        useMocker=boolean("Use mocker workers.", default=False),
        enableGpuDiscovery=boolean("Let the profiler look for GPUs.", default=False),
        autoApply=boolean("Create the graph when it is known.", default=False),
        profilingConfig=req(obj(
            "The profiler's run.",
            profilerImage=req(string("Image of the profiler.")),
            config=free("Its settings."),
            configMapRef=obj("A ConfigMap with a graph to start from.",
                             name=req(string("Name of the ConfigMap.")),
                             key=string("Key in it.", default="disagg.yaml")),
            outputPVC=string("PVC for its results."),
            resources=core("core.v1.ResourceRequirements", "Its resources."),
            tolerations=array("Its tolerations.", core("core.v1.Toleration")))),
        deploymentOverrides=obj("Changes to the graph.",
                                name=string("Its name."), namespace=string("Its namespace."),
                                labels=strings("Its labels."), annotations=strings("Its annotations."),
                                workersImage=string("Image of its workers.")))
    status = obj(
        "What has come of it.",
        state=string("Pending, Profiling, Deploying, Ready, DeploymentDeleted or Failed."),
        backend=string("Engine in use."),
        conditions=conditions(),
        observedGeneration=int64("Generation of the spec last acted on."),
        profilingResults=string("Where the results are."),
        generatedDeployment=free("The graph that was found."),
        deployment=obj("The graph that was created.",
                       name=string("Its name."), namespace=string("Its namespace."),
                       state=string("Its state."), created=boolean("Whether it has been created.")))
    return dict(kind="DynamoGraphDeploymentRequest", short="dgdr", spec=spec, status=status,
                doc="Asks for a graph that serves a model well, found by profiling.",
                columns=[column("Model", ".spec.model"), column("Backend", ".status.backend"),
                         column("State", ".status.state"),
                         column("DGD-State", ".status.deployment.state"), age()])


def column(name, path, kind="string"):
    return {"name": name, "type": kind, "jsonPath": path}


def age(name="Age"):
    return column(name, ".metadata.creationTimestamp", "date")


def definition(kind, short, doc, spec, columns, plural=None, status=None, scale=None):
    plural = plural or kind.lower() + "s"
    top = dict(apiVersion=string("Version of this schema."), kind=string("Kind of the object."),
               metadata={"type": "object"}, spec=spec) | ({"status": status} if status else {})
    subresources = ({"status": {}} if status else {}) | ({"scale": scale} if scale else {})
    version = {"name": VERSION, "served": True, "storage": True,
               "additionalPrinterColumns": columns,
               "schema": {"openAPIV3Schema": obj(doc, **top)}}
    if subresources:
        version["subresources"] = subresources
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}",
                     # The objects of the users go with the definition, so a chart must never delete it.
                     "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {"group": GROUP, "scope": "Namespaced",
                 "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural,
                           "shortNames": [short], "singular": kind.lower()},
                 "versions": [version]}}


KINDS = (graph, component_deployment, worker_metadata, scaling_adapter, model, graph_request)


class Dumper(yaml.SafeDumper):
    """Plain block YAML; nothing is shared by anchors, which not every reader expands."""

    def ignore_aliases(self, data):
        return True


def generate(kubectl):
    """Yields file name and text of every definition."""
    core = Core(kubectl)
    for make in KINDS:
        crd = definition(**make(core))
        text = yaml.dump(crd, Dumper=Dumper, sort_keys=False, width=110)
        yield (f"{GROUP}_{crd['spec']['names']['plural']}.yaml",
               f"# SPDX-License-Identifier: Apache-2.0\n# Written by crds/generate.py.\n{text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kubectl", default="kubectl", help="command that reaches the API server")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="folder to write to")
    options = parser.parse_args()
    for name, text in generate(shlex.split(options.kubectl)):
        (options.out / name).write_text(text)


if __name__ == "__main__":
    main()
