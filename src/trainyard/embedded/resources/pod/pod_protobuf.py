"""Pods as protobuf: numbers, names and types of what is reachable from a PodSpec.

From the `protobuf` and `json` tags of `types.go` in k8s.io/api/core/v1. Numbers are never given
again; a field that is not listed here is left out as a server of an older version leaves it out.
`-` in the place of a name: the fields of that message stand in the one that holds it.
"""

from __future__ import annotations

from trainyard.embedded.resources.resource import META, Messages

POD_MESSAGES: Messages = {
    "Pod": META + "2 spec PodSpec",
    "PodSpec": (
        "1 volumes Volume[], 2 containers Container[], 3 restartPolicy str, "
        "4 terminationGracePeriodSeconds int?, 5 activeDeadlineSeconds int?, 6 dnsPolicy str, "
        "7 nodeSelector str{}, 8 serviceAccountName str, 9 serviceAccount str, 10 nodeName str, "
        "11 hostNetwork bool, 12 hostPID bool, 13 hostIPC bool, "
        "14 securityContext PodSecurityContext?, 15 imagePullSecrets LocalObjectReference[], "
        "16 hostname str, 17 subdomain str, 18 affinity Affinity?, 19 schedulerName str, "
        "20 initContainers Container[], 21 automountServiceAccountToken bool?, "
        "22 tolerations Toleration[], 23 hostAliases HostAlias[], 24 priorityClassName str, "
        "25 priority int?, 26 dnsConfig PodDNSConfig?, 27 shareProcessNamespace bool?, "
        "28 readinessGates PodReadinessGate[], 29 runtimeClassName str?, "
        "30 enableServiceLinks bool?, 31 preemptionPolicy str?, 32 overhead Quantity{}, "
        "33 topologySpreadConstraints TopologySpreadConstraint[], "
        "34 ephemeralContainers EphemeralContainer[], 35 setHostnameAsFQDN bool?, 36 os PodOS?, "
        "37 hostUsers bool?, 38 schedulingGates PodSchedulingGate[], "
        "39 resourceClaims PodResourceClaim[], 40 resources ResourceRequirements?, "
        "41 hostnameOverride str?, 43 schedulingGroup PodSchedulingGroup?, "
        "44 evictionResponders EvictionResponder[]"
    ),
    "AWSElasticBlockStoreVolumeSource": (
        "1 volumeID str, 2 fsType str, 3 partition int, 4 readOnly bool"
    ),
    "Affinity": (
        "1 nodeAffinity NodeAffinity?, 2 podAffinity PodAffinity?, "
        "3 podAntiAffinity PodAntiAffinity?"
    ),
    "AppArmorProfile": "1 type str, 2 localhostProfile str?",
    "AzureDiskVolumeSource": (
        "1 diskName str, 2 diskURI str, 3 cachingMode str?, 4 fsType str?, 5 readOnly bool?, "
        "6 kind str?"
    ),
    "AzureFileVolumeSource": "1 secretName str, 2 shareName str, 3 readOnly bool",
    "CSIVolumeSource": (
        "1 driver str, 2 readOnly bool?, 3 fsType str?, 4 volumeAttributes str{}, "
        "5 nodePublishSecretRef LocalObjectReference?"
    ),
    "Capabilities": "1 add str[], 2 drop str[]",
    "CephFSVolumeSource": (
        "1 monitors str[], 2 path str, 3 user str, 4 secretFile str, "
        "5 secretRef LocalObjectReference?, 6 readOnly bool"
    ),
    "CinderVolumeSource": (
        "1 volumeID str, 2 fsType str, 3 readOnly bool, 4 secretRef LocalObjectReference?"
    ),
    "ClusterTrustBundleProjection": (
        "1 name str?, 2 signerName str?, 3 labelSelector LabelSelector?, 4 path str, "
        "5 optional bool?, 6 user int?"
    ),
    "ConfigMapEnvSource": "1 - LocalObjectReference, 2 optional bool?",
    "ConfigMapKeySelector": "1 - LocalObjectReference, 2 key str, 3 optional bool?",
    "ConfigMapProjection": "1 - LocalObjectReference, 2 items KeyToPath[], 4 optional bool?",
    "ConfigMapVolumeSource": (
        "1 - LocalObjectReference, 2 items KeyToPath[], 3 defaultMode int?, 4 optional bool?, "
        "5 defaultUser int?"
    ),
    "Container": (
        "1 name str, 2 image str, 3 command str[], 4 args str[], 5 workingDir str, "
        "6 ports ContainerPort[], 7 env EnvVar[], 8 resources ResourceRequirements, "
        "9 volumeMounts VolumeMount[], 10 livenessProbe Probe?, 11 readinessProbe Probe?, "
        "12 lifecycle Lifecycle?, 13 terminationMessagePath str, 14 imagePullPolicy str, "
        "15 securityContext SecurityContext?, 16 stdin bool, 17 stdinOnce bool, 18 tty bool, "
        "19 envFrom EnvFromSource[], 20 terminationMessagePolicy str, "
        "21 volumeDevices VolumeDevice[], 22 startupProbe Probe?, "
        "23 resizePolicy ContainerResizePolicy[], 24 restartPolicy str?, "
        "25 restartPolicyRules ContainerRestartRule[]"
    ),
    "ContainerPort": (
        "1 name str, 2 hostPort int, 3 containerPort int, 4 protocol str, 5 hostIP str"
    ),
    "ContainerResizePolicy": "1 resourceName str, 2 restartPolicy str",
    "ContainerRestartRule": "1 action str, 2 exitCodes ContainerRestartRuleOnExitCodes?",
    "ContainerRestartRuleOnExitCodes": "1 operator str, 2 values int[]",
    "DownwardAPIProjection": "1 items DownwardAPIVolumeFile[]",
    "DownwardAPIVolumeFile": (
        "1 path str, 2 fieldRef ObjectFieldSelector?, 3 resourceFieldRef ResourceFieldSelector?, "
        "4 mode int?, 5 user int?"
    ),
    "DownwardAPIVolumeSource": (
        "1 items DownwardAPIVolumeFile[], 2 defaultMode int?, 3 defaultUser int?"
    ),
    "EmptyDirVolumeSource": "1 medium str, 2 sizeLimit Quantity?, 3 mode int?",
    "EnvFromSource": (
        "1 prefix str, 2 configMapRef ConfigMapEnvSource?, 3 secretRef SecretEnvSource?"
    ),
    "EnvVar": "1 name str, 2 value str, 3 valueFrom EnvVarSource?",
    "EnvVarSource": (
        "1 fieldRef ObjectFieldSelector?, 2 resourceFieldRef ResourceFieldSelector?, "
        "3 configMapKeyRef ConfigMapKeySelector?, 4 secretKeyRef SecretKeySelector?, "
        "5 fileKeyRef FileKeySelector?"
    ),
    "EphemeralContainer": "1 - EphemeralContainerCommon, 2 targetContainerName str",
    "EphemeralContainerCommon": (
        "1 name str, 2 image str, 3 command str[], 4 args str[], 5 workingDir str, "
        "6 ports ContainerPort[], 7 env EnvVar[], 8 resources ResourceRequirements, "
        "9 volumeMounts VolumeMount[], 10 livenessProbe Probe?, 11 readinessProbe Probe?, "
        "12 lifecycle Lifecycle?, 13 terminationMessagePath str, 14 imagePullPolicy str, "
        "15 securityContext SecurityContext?, 16 stdin bool, 17 stdinOnce bool, 18 tty bool, "
        "19 envFrom EnvFromSource[], 20 terminationMessagePolicy str, "
        "21 volumeDevices VolumeDevice[], 22 startupProbe Probe?, "
        "23 resizePolicy ContainerResizePolicy[], 24 restartPolicy str?, "
        "25 restartPolicyRules ContainerRestartRule[]"
    ),
    "EphemeralVolumeSource": "1 volumeClaimTemplate PersistentVolumeClaimTemplate?",
    "EvictionResponder": "1 name str, 2 priority int?",
    "ExecAction": "1 command str[]",
    "FCVolumeSource": (
        "1 targetWWNs str[], 2 lun int?, 3 fsType str, 4 readOnly bool, 5 wwids str[]"
    ),
    "FileKeySelector": "1 volumeName str, 2 path str, 3 key str, 4 optional bool?",
    "FlexVolumeSource": (
        "1 driver str, 2 fsType str, 3 secretRef LocalObjectReference?, 4 readOnly bool, "
        "5 options str{}"
    ),
    "FlockerVolumeSource": "1 datasetName str, 2 datasetUUID str",
    "GCEPersistentDiskVolumeSource": "1 pdName str, 2 fsType str, 3 partition int, 4 readOnly bool",
    "GRPCAction": "1 port int, 2 service str?, 3 mode str?",
    "GitRepoVolumeSource": "1 repository str, 2 revision str, 3 directory str",
    "GlusterfsVolumeSource": "1 endpoints str, 2 path str, 3 readOnly bool",
    "HTTPGetAction": (
        "1 path str, 2 port IntOrString, 3 host str, 4 scheme str, 5 httpHeaders HTTPHeader[], "
        "6 protocol str?"
    ),
    "HTTPHeader": "1 name str, 2 value str",
    "HostAlias": "1 ip str, 2 hostnames str[]",
    "HostPathVolumeSource": "1 path str, 2 type str?",
    "ISCSIVolumeSource": (
        "1 targetPortal str, 2 iqn str, 3 lun int, 4 iscsiInterface str, 5 fsType str, "
        "6 readOnly bool, 7 portals str[], 8 chapAuthDiscovery bool, "
        "10 secretRef LocalObjectReference?, 11 chapAuthSession bool, 12 initiatorName str?"
    ),
    "ImageVolumeSource": "1 reference str, 2 pullPolicy str",
    "KeyToPath": "1 key str, 2 path str, 3 mode int?, 4 user int?",
    "LabelSelector": "1 matchLabels str{}, 2 matchExpressions LabelSelectorRequirement[]",
    "LabelSelectorRequirement": "1 key str, 2 operator str, 3 values str[]",
    "Lifecycle": "1 postStart LifecycleHandler?, 2 preStop LifecycleHandler?, 3 stopSignal str?",
    "LifecycleHandler": (
        "1 exec ExecAction?, 2 httpGet HTTPGetAction?, 3 tcpSocket TCPSocketAction?, "
        "4 sleep SleepAction?"
    ),
    "LocalObjectReference": "1 name str",
    "NFSVolumeSource": "1 server str, 2 path str, 3 readOnly bool",
    "NodeAffinity": (
        "1 requiredDuringSchedulingIgnoredDuringExecution NodeSelector?, "
        "2 preferredDuringSchedulingIgnoredDuringExecution PreferredSchedulingTerm[]"
    ),
    "NodeSelector": "1 nodeSelectorTerms NodeSelectorTerm[]",
    "NodeSelectorRequirement": "1 key str, 2 operator str, 3 values str[]",
    "NodeSelectorTerm": (
        "1 matchExpressions NodeSelectorRequirement[], 2 matchFields NodeSelectorRequirement[]"
    ),
    "ObjectFieldSelector": "1 apiVersion str, 2 fieldPath str",
    "PersistentVolumeClaimSpec": (
        "1 accessModes str[], 2 resources VolumeResourceRequirements, 3 volumeName str, "
        "4 selector LabelSelector?, 5 storageClassName str?, 6 volumeMode str?, "
        "7 dataSource TypedLocalObjectReference?, 8 dataSourceRef TypedObjectReference?, "
        "9 volumeAttributesClassName str?"
    ),
    "PersistentVolumeClaimTemplate": "1 metadata ObjectMeta, 2 spec PersistentVolumeClaimSpec",
    "PersistentVolumeClaimVolumeSource": "1 claimName str, 2 readOnly bool",
    "PhotonPersistentDiskVolumeSource": "1 pdID str, 2 fsType str",
    "PodAffinity": (
        "1 requiredDuringSchedulingIgnoredDuringExecution PodAffinityTerm[], "
        "2 preferredDuringSchedulingIgnoredDuringExecution WeightedPodAffinityTerm[]"
    ),
    "PodAffinityTerm": (
        "1 labelSelector LabelSelector?, 2 namespaces str[], 3 topologyKey str, "
        "4 namespaceSelector LabelSelector?, 5 matchLabelKeys str[], 6 mismatchLabelKeys str[]"
    ),
    "PodAntiAffinity": (
        "1 requiredDuringSchedulingIgnoredDuringExecution PodAffinityTerm[], "
        "2 preferredDuringSchedulingIgnoredDuringExecution WeightedPodAffinityTerm[]"
    ),
    "PodCertificateProjection": (
        "1 signerName str, 2 keyType str, 3 maxExpirationSeconds int?, "
        "4 credentialBundlePath str, 5 keyPath str, 6 certificateChainPath str, "
        "7 userAnnotations str{}, 8 user int?"
    ),
    "PodDNSConfig": "1 nameservers str[], 2 searches str[], 3 options PodDNSConfigOption[]",
    "PodDNSConfigOption": "1 name str, 2 value str?",
    "PodOS": "1 name str",
    "PodReadinessGate": "1 conditionType str",
    "PodResourceClaim": "1 name str, 3 resourceClaimName str?, 4 resourceClaimTemplateName str?",
    "PodSchedulingGate": "1 name str",
    "PodSchedulingGroup": "1 podGroupName str?",
    "PodSecurityContext": (
        "1 seLinuxOptions SELinuxOptions?, 2 runAsUser int?, 3 runAsNonRoot bool?, "
        "4 supplementalGroups int[], 5 fsGroup int?, 6 runAsGroup int?, 7 sysctls Sysctl[], "
        "8 windowsOptions WindowsSecurityContextOptions?, 9 fsGroupChangePolicy str?, "
        "10 seccompProfile SeccompProfile?, 11 appArmorProfile AppArmorProfile?, "
        "12 supplementalGroupsPolicy str?, 13 seLinuxChangePolicy str?"
    ),
    "PortworxVolumeSource": "1 volumeID str, 2 fsType str, 3 readOnly bool",
    "PreferredSchedulingTerm": "1 weight int, 2 preference NodeSelectorTerm",
    "Probe": (
        "1 - ProbeHandler, 2 initialDelaySeconds int, 3 timeoutSeconds int, 4 periodSeconds int, "
        "5 successThreshold int, 6 failureThreshold int, 7 terminationGracePeriodSeconds int?"
    ),
    "ProbeHandler": (
        "1 exec ExecAction?, 2 httpGet HTTPGetAction?, 3 tcpSocket TCPSocketAction?, "
        "4 grpc GRPCAction?"
    ),
    "ProjectedVolumeSource": "1 sources VolumeProjection[], 2 defaultMode int?, 3 defaultUser int?",
    "QuobyteVolumeSource": (
        "1 registry str, 2 volume str, 3 readOnly bool, 4 user str, 5 group str, 6 tenant str"
    ),
    "RBDVolumeSource": (
        "1 monitors str[], 2 image str, 3 fsType str, 4 pool str, 5 user str, 6 keyring str, "
        "7 secretRef LocalObjectReference?, 8 readOnly bool"
    ),
    "ResourceClaim": "1 name str, 2 request str",
    "ResourceFieldSelector": "1 containerName str, 2 resource str, 3 divisor Quantity",
    "ResourceRequirements": "1 limits Quantity{}, 2 requests Quantity{}, 3 claims ResourceClaim[]",
    "SELinuxOptions": "1 user str, 2 role str, 3 type str, 4 level str",
    "ScaleIOVolumeSource": (
        "1 gateway str, 2 system str, 3 secretRef LocalObjectReference?, 4 sslEnabled bool, "
        "5 protectionDomain str, 6 storagePool str, 7 storageMode str, 8 volumeName str, "
        "9 fsType str, 10 readOnly bool"
    ),
    "SeccompProfile": "1 type str, 2 localhostProfile str?",
    "SecretEnvSource": "1 - LocalObjectReference, 2 optional bool?",
    "SecretKeySelector": "1 - LocalObjectReference, 2 key str, 3 optional bool?",
    "SecretProjection": "1 - LocalObjectReference, 2 items KeyToPath[], 4 optional bool?",
    "SecretVolumeSource": (
        "1 secretName str, 2 items KeyToPath[], 3 defaultMode int?, 4 optional bool?, "
        "5 defaultUser int?"
    ),
    "SecurityContext": (
        "1 capabilities Capabilities?, 2 privileged bool?, 3 seLinuxOptions SELinuxOptions?, "
        "4 runAsUser int?, 5 runAsNonRoot bool?, 6 readOnlyRootFilesystem bool?, "
        "7 allowPrivilegeEscalation bool?, 8 runAsGroup int?, 9 procMount str?, "
        "10 windowsOptions WindowsSecurityContextOptions?, 11 seccompProfile SeccompProfile?, "
        "12 appArmorProfile AppArmorProfile?"
    ),
    "ServiceAccountTokenProjection": (
        "1 audience str, 2 expirationSeconds int?, 3 path str, 4 user int?"
    ),
    "SleepAction": "1 seconds int",
    "StorageOSVolumeSource": (
        "1 volumeName str, 2 volumeNamespace str, 3 fsType str, 4 readOnly bool, "
        "5 secretRef LocalObjectReference?"
    ),
    "Sysctl": "1 name str, 2 value str",
    "TCPSocketAction": "1 port IntOrString, 2 host str",
    "Toleration": "1 key str, 2 operator str, 3 value str, 4 effect str, 5 tolerationSeconds int?",
    "TopologySpreadConstraint": (
        "1 maxSkew int, 2 topologyKey str, 3 whenUnsatisfiable str, "
        "4 labelSelector LabelSelector?, 5 minDomains int?, 6 nodeAffinityPolicy str?, "
        "7 nodeTaintsPolicy str?, 8 matchLabelKeys str[]"
    ),
    "TypedLocalObjectReference": "1 apiGroup str?, 2 kind str, 3 name str",
    "TypedObjectReference": "1 apiGroup str?, 2 kind str, 3 name str, 4 namespace str?",
    "Volume": "1 name str, 2 - VolumeSource",
    "VolumeDevice": "1 name str, 2 devicePath str",
    "VolumeMount": (
        "1 name str, 2 readOnly bool, 3 mountPath str, 4 subPath str, 5 mountPropagation str?, "
        "6 subPathExpr str, 7 recursiveReadOnly str?, 8 bindMountOptions str[]"
    ),
    "VolumeProjection": (
        "1 secret SecretProjection?, 2 downwardAPI DownwardAPIProjection?, "
        "3 configMap ConfigMapProjection?, 4 serviceAccountToken ServiceAccountTokenProjection?, "
        "5 clusterTrustBundle ClusterTrustBundleProjection?, "
        "6 podCertificate PodCertificateProjection?"
    ),
    "VolumeResourceRequirements": "1 limits Quantity{}, 2 requests Quantity{}",
    "VolumeSource": (
        "1 hostPath HostPathVolumeSource?, 2 emptyDir EmptyDirVolumeSource?, "
        "3 gcePersistentDisk GCEPersistentDiskVolumeSource?, "
        "4 awsElasticBlockStore AWSElasticBlockStoreVolumeSource?, "
        "5 gitRepo GitRepoVolumeSource?, 6 secret SecretVolumeSource?, 7 nfs NFSVolumeSource?, "
        "8 iscsi ISCSIVolumeSource?, 9 glusterfs GlusterfsVolumeSource?, "
        "10 persistentVolumeClaim PersistentVolumeClaimVolumeSource?, 11 rbd RBDVolumeSource?, "
        "12 flexVolume FlexVolumeSource?, 13 cinder CinderVolumeSource?, "
        "14 cephfs CephFSVolumeSource?, 15 flocker FlockerVolumeSource?, "
        "16 downwardAPI DownwardAPIVolumeSource?, 17 fc FCVolumeSource?, "
        "18 azureFile AzureFileVolumeSource?, 19 configMap ConfigMapVolumeSource?, "
        "20 vsphereVolume VsphereVirtualDiskVolumeSource?, 21 quobyte QuobyteVolumeSource?, "
        "22 azureDisk AzureDiskVolumeSource?, "
        "23 photonPersistentDisk PhotonPersistentDiskVolumeSource?, "
        "24 portworxVolume PortworxVolumeSource?, 25 scaleIO ScaleIOVolumeSource?, "
        "26 projected ProjectedVolumeSource?, 27 storageos StorageOSVolumeSource?, "
        "28 csi CSIVolumeSource?, 29 ephemeral EphemeralVolumeSource?, "
        "30 image ImageVolumeSource?"
    ),
    "VsphereVirtualDiskVolumeSource": (
        "1 volumePath str, 2 fsType str, 3 storagePolicyName str, 4 storagePolicyID str"
    ),
    "WeightedPodAffinityTerm": "1 weight int, 2 podAffinityTerm PodAffinityTerm",
    "WindowsSecurityContextOptions": (
        "1 gmsaCredentialSpecName str?, 2 gmsaCredentialSpec str?, 3 runAsUserName str?, "
        "4 hostProcess bool?"
    ),
}
