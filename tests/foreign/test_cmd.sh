# Runs those sections of Kubernetes' test/cmd that ask for nothing but what is served here, and tells
# of every assertion in them. Not a stop at the first failure, as they do themselves: a line a verdict,
#   ## passed|failed TAB file:line TAB helper
# after what it printed. A command that fails where they would stop is told of as well.
#
# It runs in the root of a copy of Kubernetes' source. KUBECTL_FOLDER has a kubectl, an API server
# with the token `admin-token` listens on SECURE_API_PORT, KUBECONFIG and KUBE_TEMP can be written.
# ONLY names sections (`pod service`), for whoever looks into one.

SUPPORTED_RESOURCES=(
  configmaps namespaces nodes persistentvolumeclaims pods secrets serviceaccounts services
  subjectaccessreviews
)

source hack/lib/init.sh
source hack/lib/test.sh
export KUBE_OUTPUT_HOSTBIN=$KUBECTL_FOLDER # nothing is built
source test/cmd/legacy-script.sh >/dev/null 2>&1

builtin set +o errexit +o nounset -o errtrace
trap - EXIT SIGINT
exec 3>&1

# Sections set these to stop at the first failure (one of them not for a while), and end where one is
# noticed.
set() {
  case $* in
  *errexit* | *nounset*) ;;
  +e*) judging=yes ;;
  -e*) judging= ;;
  *) builtin set "$@" ;;
  esac
}
exit() {
  if ((BASH_SUBSHELL > base)); then builtin exit "$@"; fi
  ((${1-0} == 0)) || tell failed exit
}

# tell VERDICT HELPER: about the line of theirs that is running; it may be no helper that failed.
tell() {
  local frame=1
  while [[ ${BASH_SOURCE[frame]} != *test/cmd/* ]]; do ((++frame)); done
  local place=${BASH_SOURCE[frame]##*/}:${BASH_LINENO[frame - 1]}
  printf '\n## %s\t%s\t%s\n' "$1" "$place" "$2" >&3
}

command_failed() {
  if [[ -n ${judging-} ]] || ((BASH_SUBSHELL > base)); then return; fi
  echo "this failed: $1"
  tell failed command
}

judge() {
  if [[ -n ${judging-} ]]; then # one helper calls another
    "theirs::$1" "${@:2}"
    return
  fi
  local judging=yes verdict=failed
  "theirs::$1" "${@:2}" && verdict=passed
  tell "$verdict" "${1#kube::test::}"
}

while read -r name; do
  case $name in
  *::clear_all | *::if_supports_resource | *_to_file) continue ;;
  esac
  eval "theirs::$(declare -f "$name")"
  eval "$name() { judge $name \"\$@\"; }"
done < <(compgen -A function kube::test::)

record_command() {
  local section=${1#run_}
  section=${section%_test*}
  case $section in # they ask no server, or how fast it is
  kubectl_config_* | client_config | plugins | kubectl_request_timeout) return ;;
  esac
  if [[ -n ${ONLY-} && " $ONLY " != *" $section "* ]]; then return; fi
  (
    base=$BASH_SUBSHELL SECONDS=0 judging=
    "$@"
    judging=yes
    printf '\n## ended\t%s\t%s\n' "$section" "$SECONDS" >&3
  )
}

kubectl config set-credentials test-admin --token admin-token
kubectl config set-cluster local --insecure-skip-tls-verify --server "https://127.0.0.1:$SECURE_API_PORT"
kubectl config set-context test --user test-admin --cluster local
kubectl config use-context test
# With what a controller writes about a node without kubelet.
kubectl create -f - <<'END'
apiVersion: v1
kind: Node
metadata: {name: 127.0.0.1}
status: {capacity: {memory: 1Gi}, conditions: [{type: Ready, status: Unknown}]}
END

trap 'command_failed "$BASH_COMMAND"' ERR
ALLOW_SKEW=yes
CONTEXT=test
base=$BASH_SUBSHELL
kube::util::ensure-gnu-sed
runTests </dev/null 2>&1
