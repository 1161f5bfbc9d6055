"""The examples of the reference of the Python API, by what they show.

All of them are one script, in this order, in a folder with a `job.yaml` and a `tell.py`;
`tests/embedded/test_api_reference.py` runs it. What a `print` prints stands behind it.
"""

from __future__ import annotations

EXAMPLES = {
    "run": """
import os

import trainyard


def train(steps, rate=0.1):
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
    return {"steps": steps, "rate": rate}


if __name__ == "__main__":
    print(trainyard.run(train, args=(3,), replicas=2))  # {'steps': 3, 'rate': 0.1}
    trainyard.run("tell.py", args=["--steps", "3"], replicas=2, name="tell")
    print(trainyard.run("job.yaml"))  # [<PyTorchTrainingJob default/hello: Succeeded>]
""",
    "propose": """
text = trainyard.propose("tell.py", ["--steps", 3], replicas=2)
print(text.splitlines()[1])  # kind: PyTorchTrainingJob
""",
    "validate": """
print(trainyard.validate("kind: PyTorchTrainingJob\\nspec: {}\\n")[0].where)  # apiVersion
print(trainyard.validate("job.yaml"))  # []
""",
    "render": """
print(len(trainyard.render("job.yaml")))  # 2
""",
    "convert": """
print(trainyard.convert("kind: Queue\\nmetadata: {name: night}\\n").splitlines()[0])  # kind: Queue
""",
    "history": """
print([past.job.name for past in trainyard.history(limit=2)])  # ['hello', 'tell']
print(trainyard.history("hello")[0].result.phase)  # Succeeded
""",
    "command": """
print(trainyard.command("--version").strip())  # trainyard, version 0.1.0
""",
    "Client": """
client = trainyard.Client(cluster="private")
""",
    "Client.run": """
[told] = client.run("tell", ["--steps", 1], module=True, snapshot=True)
print(told)  # PyTorchTrainingJob default/tell
try:
    client.run(lambda: 1)
except trainyard.CaptureError as error:
    print(error)  # a lambda cannot be run by replicas: give it a name, with def


def look(path):
    return os.stat(path)


try:
    client.run(look, args=("/nowhere",), replicas=2)
except FileNotFoundError as error:
    print(error)  # [Errno 2] No such file or directory: '/nowhere'
""",
    "Client.submit": """
[job] = client.submit("job.yaml")
[model] = client.submit(
    trainyard.PyTorchTrainingJob(
        metadata=trainyard.ObjectMeta(name="sleep"),
        spec=trainyard.PyTorchTrainingJobSpec(
            replica_specs=(
                trainyard.PyTorchReplicaSpec(
                    type="worker",
                    template={
                        "spec": {
                            "containers": [
                                {"name": "main", "image": "any", "command": ["sleep", "1000"]}
                            ]
                        }
                    },
                ),
            )
        ),
    )
)
print(model.name)  # sleep
""",
    "Client.wait": """
print(client.wait(job).phase)  # Succeeded
client.wait("sleep", "phase=Running")
try:
    client.wait("sleep", timeout=0.1)
except trainyard.WaitTimeout as error:
    print(error)  # PyTorchTrainingJob default/sleep: gave up after 0.1 s of waiting to end
""",
    "Client.list": """
print([each.name for each in client.list()])  # ['hello', 'sleep']
""",
    "Client.watch": """
for jobs in client.watch():
    print([job.phase for job in jobs])  # ['Succeeded', 'Running']
    break
""",
    "Client.get": """
print([pod.phase for pod in client.get("sleep").ordered_pods()])  # ['Running']
""",
    "Client.logs": """
for line in client.logs("hello"):
    print(line.replica, line.text)  # worker-0 hello
""",
    "Client.logs_at": """
print(os.path.basename(client.logs_at("hello")).startswith("default_hello-"))  # True
""",
    "Client.events": """
print(list(client.events("hello", warnings=True)))  # []
""",
    "Client.explain": """
print(len(client.explain("hello").causes))  # 1
""",
    "Client.usage": """
[usage] = client.usage("sleep")
print(usage.replica, list(usage.containers), usage.used.memory > 0)  # worker-0 ['main'] True
""",
    "Client.node_usage": """
node = client.node_usage()
print(node.used.memory < node.capacity.memory)  # True
""",
    "Client.owners": """
print(client.owners())  # {}
""",
    "Client.exec": """
done = client.exec("sleep", ["sh", "-c", "echo $RANK"])
print(done.exit_code, done.stdout)  # 0 b'0\\n'
""",
    "Client.stacks": """
try:
    client.stacks("sleep")
except trainyard.CommandError as error:
    print("no Python program runs" in str(error))  # True
""",
    "Client.running_replica": """
print(client.running_replica("sleep"))  # worker-0
""",
    "Client.pause": """
print(client.pause("sleep"), client.pause("sleep"))  # True False
""",
    "Client.resume": """
print(client.resume("sleep"))  # True
""",
    "Client.scale": """
try:
    client.scale("sleep", replicas=2)
except trainyard.CommandError as error:
    print("not elastic" in str(error))  # True
""",
    "Client.past": """
print(client.past("hello").command)  # examples.py
""",
    "Client.rerun": """
template = "spec.replicaSpecs[0].template.spec.containers[0]"
again = client.rerun("hello", {f"{template}.command": ["echo", "hello again"]})
print(client.wait(again).name)  # hello-2
""",
    "Client.diff": """
found = client.diff("hello", again)
print([change.b for change in found.spec])  # ['echo', 'hello again', None]
print(found.results.b.phase)  # Succeeded
""",
    "Client.delete": """
deleted = client.delete(["hello", "hello-2", "sleep"])
""",
    "Client.wait_until_gone": """
client.wait_until_gone(deleted)
print(client.list())  # []
""",
    "Client.create_queue": """
client.create_queue("night", quota={"nvidia.com/gpu": "8"}, priority=10)
""",
    "Client.queue": """
print(client.queue("night")["spec"]["priority"])  # 10
""",
    "Client.queues": """
print([queue["metadata"]["name"] for queue in client.queues()])  # ['default', 'night']
""",
    "Client.close_queue": """
client.close_queue("night")
""",
    "Client.open_queue": """
client.open_queue("night")
""",
    "Client.delete_queue": """
client.delete_queue("night")
""",
    "Client.close": """
client.close()
""",
    "AsyncClient": """
import asyncio


async def main():
    async with trainyard.AsyncClient(cluster="private") as client:
        [job] = await client.submit("job.yaml")
        async for line in client.logs(job, follow=True):
            print(line.text)  # hello
        await client.wait(job)


asyncio.run(main())
""",
}
