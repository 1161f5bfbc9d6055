// `@kubernetes/client-node`, with its watch, informer, exec, logs and port-forward.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { PassThrough, Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const installed = createRequire(`${process.env.INSTALLED}/`).resolve("@kubernetes/client-node");
const k8s = await import(pathToFileURL(installed));
const namespace = process.env.NAMESPACE;
const patienceSeconds = 120;
const port = 8080;
const [group, version] = ["batch.tensorstack.dev", "v1beta1"];
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const merge = k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.MergePatch);
const strategic = k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.StrategicMergePatch);

const metadata = (name) => ({ name, namespace, labels: { app: name } });
const container = (command) => ({ name: "worker", image: "python", command: ["sh", "-c", command] });
const podSpec = (command) => ({
  containers: [container(command)], restartPolicy: "Never", terminationGracePeriodSeconds: 1,
});
const pod = (name, command = "exec sleep 3600") => ({
  apiVersion: "v1", kind: "Pod", metadata: metadata(name), spec: podSpec(command),
});
const configMap = (name, data) => ({
  apiVersion: "v1", kind: "ConfigMap", metadata: metadata(name), data,
});
const job = (kind, spec) => ({
  apiVersion: `${group}/${version}`, kind, metadata: metadata("job"), spec,
});
const worker = { type: "worker", replicas: 1, template: { spec: podSpec("true") } };
const paused = { runMode: { pause: { enabled: true } } };
const jobs = {
  genericjobs: job("GenericJob", { replicaSpecs: [worker] }),
  pytorchtrainingjobs: job("PyTorchTrainingJob", { replicaSpecs: [worker], ...paused }),
  deepspeedjobs: job("DeepSpeedJob", {
    config: { run: { python: ["a.py"] } }, worker: { ...worker, type: undefined }, ...paused,
  }),
  colossalaijobs: job("ColossalAIJob", {
    torchConfig: { script: ["a.py"] },
    replicaSpecs: [{ type: "launcher", template: {} }, worker],
    ...paused,
  }),
};
const create = (body) => core.createNamespacedPod({ namespace, body });

/** The first event of a watch for which something holds. */
async function watched(path, query, holds) {
  const { promise, resolve, reject } = deferred();
  const stop = await new k8s.Watch(config).watch(
    path, { timeoutSeconds: patienceSeconds, ...query },
    (type, object) => holds(type, object) && resolve(object),
    (error) => reject(error ?? new Error("the watch has ended")),
  );
  try {
    return await promise;
  } finally {
    stop.abort();
  }
}

function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

const podWatched = (name, holds) => watched(
  `/api/v1/namespaces/${namespace}/pods`, { fieldSelector: `metadata.name=${name}` }, holds,
);
const isReady = (_, { status }) =>
  (status.conditions ?? []).some(({ type, status }) => type === "Ready" && status === "True");
const isIn = (phase) => (_, { status }) => status.phase === phase;

class Kept extends Writable {
  text = "";
  _write(chunk, _, done) {
    this.text += chunk;
    done();
  }
}

async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return error.code;
  }
  throw new Error("it was not refused");
}

async function pods() {
  const created = await create(pod("plain"));
  assert.equal(created.status.phase, "Pending");
  await podWatched("plain", isIn("Running"));
  const listed = await core.listNamespacedPod({ namespace, labelSelector: "app=plain" });
  assert.deepEqual(listed.items.map((each) => each.metadata.name), ["plain"]);
  const body = { metadata: { labels: { team: "blue" } } };
  const patched = await core.patchNamespacedPod({ name: "plain", namespace, body }, strategic);
  assert.deepEqual(patched.metadata.labels, { app: "plain", team: "blue" });
  const gone = podWatched("plain", (type) => type === "DELETED");
  await core.deleteNamespacedPod({ name: "plain", namespace });
  await gone;
}

async function logs() {
  await create(pod("told", "echo one; echo two"));
  await podWatched("told", isIn("Succeeded"));
  const ask = { name: "told", namespace };
  assert.equal(await core.readNamespacedPodLog(ask), "one\ntwo\n");
  assert.equal(await core.readNamespacedPodLog({ ...ask, tailLines: 1 }), "two\n");
  const followed = new PassThrough();
  await new k8s.Log(config).log(namespace, "told", "worker", followed, { follow: true });
  assert.equal(Buffer.concat(await followed.toArray()).toString(), "one\ntwo\n");
}

async function execute() {
  await create(pod("busy"));
  await podWatched("busy", isIn("Running"));
  const [out, err] = [new Kept(), new Kept()];
  const command = ["sh", "-c", "read line; echo got $line; echo bad >&2; exit 3"];
  const { promise, resolve } = deferred();
  const input = Readable.from(["a word\n"]);
  await new k8s.Exec(config).exec(
    namespace, "busy", "worker", command, out, err, input, false, resolve,
  );
  const status = await promise;
  assert.deepEqual([out.text, err.text], ["got a word\n", "bad\n"]);
  assert.equal(status.details.causes[0].message, "3");
}

async function port_forward() {
  const body = pod("web", `exec python3 -m http.server ${port} --bind 0.0.0.0`);
  body.spec.containers[0].readinessProbe = { tcpSocket: { port }, periodSeconds: 1 };
  await create(body);
  await podWatched("web", isReady);
  const [out, input] = [new Kept(), new PassThrough()];
  await new k8s.PortForward(config).portForward(namespace, "web", [port], out, null, input);
  input.write("GET / HTTP/1.0\r\n\r\n");
  const end = Date.now() + patienceSeconds * 1000;
  while (!out.text && Date.now() < end) await sleep(20);
  assert.match(out.text, /^HTTP\/1.0 200/);
}

async function config_maps() {
  for (const name of ["m1", "m2", "m3"]) {
    await core.createNamespacedConfigMap({ namespace, body: configMap(name, { a: "1" }) });
  }
  const found = await core.readNamespacedConfigMap({ name: "m1", namespace });
  found.data.a = "2";
  const replace = () => core.replaceNamespacedConfigMap({ name: "m1", namespace, body: found });
  await replace();
  assert.equal(await refusal(replace()), 409);
  const body = { data: { a: null, b: "3" } };
  const patched = await core.patchNamespacedConfigMap({ name: "m1", namespace, body }, merge);
  assert.deepEqual(patched.data, { b: "3" });
  const selected = { namespace, labelSelector: "app in (m1,m2,m3)" };
  const first = await core.listNamespacedConfigMap({ ...selected, limit: 2 });
  const rest = await core.listNamespacedConfigMap({
    ...selected, limit: 2, _continue: first.metadata._continue,
  });
  const names = [...first.items, ...rest.items].map((each) => each.metadata.name);
  assert.deepEqual(names, ["m1", "m2", "m3"]);
  await core.deleteCollectionNamespacedConfigMap(selected);
  assert.deepEqual((await core.listNamespacedConfigMap(selected)).items, []);
}

async function services() {
  const spec = { selector: { app: "web" }, ports: [{ name: "web", port: 80, targetPort: port }] };
  const body = { apiVersion: "v1", kind: "Service", metadata: metadata("web-service"), spec };
  const made = await core.createNamespacedService({ namespace, body });
  assert.ok(made.spec.clusterIP);
  const change = { metadata: { labels: { team: "blue" } } };
  const at = { name: "web-service", namespace };
  const patched = await core.patchNamespacedService({ ...at, body: change }, merge);
  assert.equal(patched.metadata.labels.team, "blue");
  await core.deleteNamespacedService(at);
  assert.equal(await refusal(core.readNamespacedService(at)), 404);
}

async function apply() {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const applied = async (manager, data, force) => (await objects.patch(
    configMap("applied", data), undefined, undefined, manager, force,
    k8s.PatchStrategy.ServerSideApply,
  )).data;
  assert.deepEqual(await applied("mine", { a: "1" }), { a: "1" });
  assert.equal(await refusal(applied("theirs", { a: "2" })), 409);
  assert.deepEqual(await applied("theirs", { a: "2" }, true), { a: "2" });
  assert.deepEqual(await applied("mine", { b: "3" }), { a: "2", b: "3" });
}

async function our_kinds() {
  for (const [plural, manifest] of Object.entries(jobs)) {
    const at = { group, version, namespace, plural };
    await custom.createNamespacedCustomObject({ ...at, body: manifest });
    const path = `/apis/${group}/${version}/namespaces/${namespace}/${plural}`;
    const wanted = plural === "genericjobs" ? "Succeeded" : "Paused";
    await watched(path, {}, (_, { status }) => status?.phase === wanted);
    const body = { metadata: { labels: { team: "blue" } } };
    await custom.patchNamespacedCustomObject({ ...at, name: "job", body }, merge);
    const listed = await custom.listNamespacedCustomObject({ ...at, labelSelector: "team=blue" });
    assert.deepEqual(listed.items.map((each) => each.metadata.name), ["job"]);
    const gone = watched(path, {}, (type) => type === "DELETED");
    await custom.deleteNamespacedCustomObject({ ...at, name: "job" });
    await gone;
  }
}

async function refusals() {
  assert.equal(await refusal(core.readNamespacedPod({ name: "none", namespace })), 404);
  const twice = () => core.createNamespacedConfigMap({ namespace, body: configMap("twice", {}) });
  await twice();
  assert.equal(await refusal(twice()), 409);
  const wrong = pod("wrong");
  wrong.spec.containers[0].name = "No Name";
  assert.equal(await refusal(create(wrong)), 422);
}

async function main(...steps) {
  for (const step of steps) {
    let error = "";
    try {
      await step();
    } catch (problem) {
      error = `${problem.stack}`;
    }
    console.log(JSON.stringify({ step: step.name, error }));
  }
  process.exit(0);
}

main(pods, logs, execute, port_forward, config_maps, services, apply, our_kinds, refusals);
