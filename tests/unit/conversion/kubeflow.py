"""Jobs of Kubeflow's training operator for frameworks other than PyTorch, one of each kind."""

TF = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist, namespace: team}
spec:
  successPolicy: AllWorkers
  enableDynamicWorker: true
  runPolicy: {cleanPodPolicy: All, backoffLimit: 3, schedulingPolicy: {queue: fast}}
  tfReplicaSpecs:
    Chief:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - {name: tensorflow, image: example/tf:1, command: [python, train.py]}
    PS:
      replicas: 1
      restartPolicy: Always
      template:
        spec:
          containers:
            - {name: tensorflow, image: example/tf:1, command: [python, ps.py]}
    Worker:
      replicas: 2
      restartPolicy: ExitCode
      template:
        spec:
          containers:
            - {name: logs, image: example/logs:1, command: [tail]}
            - name: tensorflow
              image: example/tf:1
              command: [python, train.py]
              ports: [{name: tfjob-port, containerPort: 3333}]
"""
JAX = """\
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {name: net}
spec:
  runPolicy: {ttlSecondsAfterFinished: 60, activeDeadlineSeconds: 600, suspend: true}
  jaxReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: jax
              image: example/jax:1
              command: [python, train.py]
              env: [{name: LR, value: "0.1"}]
"""
XGBOOST = """\
apiVersion: kubeflow.org/v1
kind: XGBoostJob
metadata: {name: trees}
spec:
  xgbReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - {name: xgboost, image: example/xgb:1, command: [python, train.py]}
    Worker:
      replicas: 2
      restartPolicy: Never
      template:
        spec:
          containers:
            - {name: xgboost, image: example/xgb:1, command: [python, train.py, --quiet]}
"""
