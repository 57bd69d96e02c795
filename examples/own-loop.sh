#!/bin/sh
# A `claude -p` loop of your own, with the resume pointer in between: each line of standard input is a message, each
# answer goes to standard output. Between two calls `kael-runner hook-stop --wait` measures the session and, when a
# rebuild is due and agreed to (rebuild = "auto", or `kael-runner confirm`), moves the pointer to the clean one.
#
#   KAEL_RUNNER_CONFIG=~/.config/kael-runner/config.toml ./own-loop.sh --allowedTools Read
#
# The configuration says activation = "pointer". `--new` in front begins a session with the first message; without it
# the pointer names one already (`kael-runner adopt SESSION`). Other arguments are handed on to claude. Nothing else may
# run the session.
set -eu
cd "${COMPANION_DIR:-.}"
new=
if [ "${1:-}" = --new ]; then
    new=1
    shift
fi

while IFS= read -r message; do
    if [ -n "$new" ]; then
        new=
        session=$(cat /proc/sys/kernel/random/uuid)
        printf '%s' "$message" | claude -p --session-id "$session" "$@"
    else
        # --locked waits for a switch that is under way. Without a session this fails, and so does the loop: never a
        # fresh session where there was one.
        session=$(kael-runner pointer show --locked)
        printf '%s' "$message" | claude -p --resume "$session" "$@"
    fi
    # The first call tells the pointer its session; a later one that has run another session is told so (exit code 4).
    printf '{"session_id":"%s"}' "$session" | kael-runner hook-stop --wait >/dev/null
done
