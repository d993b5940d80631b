#!/usr/bin/env bash
# Runs go build with the arguments given, and says every ten seconds how far it is: a first
# build compiles more than a thousand packages, which takes minutes. A build of what is in the
# cache says nothing.
set -euo pipefail

done=0 said=$SECONDS
${GO:-go} build -v "$@" 2>&1 | while IFS= read -r line; do
	if [[ "$line" =~ ^[a-z0-9][^[:space:]]*$ ]]; then # the path of a package, as -v says it
		done=$((done + 1))
		if ((SECONDS - said >= 10)); then
			said=$SECONDS
			echo "building sandlane: ${SECONDS}s elapsed, $done packages compiled, now $line (about 1,300 and four minutes on two cores the first time)"
		fi
	else
		echo "$line"
	fi
done >&2
