#!/bin/sh
# Writes the Kafka rights of one role for one principal, and no more: `acls.sh --help`.
set -eu

# role, kind of resource, pattern, name after the prefix and `lowmark.v1.`, operations. JOB stands for the job's name; `JOB.`
# begins the ids of its buckets, and the names of jobs of some of its queries. A name that begins with = is whole: the groups of readers, for which
# Kafka's client asks although nothing is kept there.
# Read and Write include Describe. docs/security.md says what each right is for. The chart reads this table, too.
rights='
capture  topic             literal   sources    DescribeConfigs Read Write
capture  topic             prefixed  partials.  DescribeConfigs Write
capture  group             prefixed  =lowmark-  Describe
job      topic             literal   sources    DescribeConfigs Read Write
job      topic             prefixed  partials.  DescribeConfigs Read Write
job      topic             prefixed  exchange.  DescribeConfigs Read Write
job      topic             prefixed  results.   DescribeConfigs Read Write
job      topic             prefixed  late.      DescribeConfigs Write
job      topic             literal   dead       DescribeConfigs Write
job      group             prefixed  job.JOB.   Read
job      group             prefixed  query.     Read
job      group             prefixed  =lowmark-  Describe
job      transactional-id  prefixed  job.JOB.   Write
job      transactional-id  prefixed  query.     Write
reader   topic             prefixed  results.   Read
reader   topic             prefixed  late.      Read
reader   topic             prefixed  partials.  Read
reader   topic             prefixed  exchange.  Read
reader   topic             literal   sources    Read
reader   group             prefixed  =lowmark-  Describe
'

usage() {
    cat <<END
Usage: acls.sh ROLE PRINCIPAL OPTION…

Gives PRINCIPAL the rights of ROLE: capture, job or reader. Rights that are there stay. The options go to Kafka's own
kafka-acls.sh: the connection of an administrator.

Environment:
  PREFIX      topics.prefix of lowmark.toml; default: none
  JOB         job.name of lowmark.toml; default: lowmark
  KAFKA_ACLS  the command kafka-acls.sh; default: kafka-acls.sh
  REMOVE      1: take these rights away instead

Examples:
  acls.sh capture User:tap --bootstrap-server kafka:9093 --command-config admin.properties
  acls.sh reader 'User:CN=grafana' --bootstrap-server kafka:9093 --command-config admin.properties
  REMOVE=1 acls.sh job User:job --bootstrap-server kafka:9093 --command-config admin.properties
END
}

case "${1:-}" in
    capture | job | reader) role=$1 ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
principal=${2:-}
case "$principal" in
    User:?*) ;;
    *) echo "acls.sh: '$principal' is no principal: write User:NAME, or 'User:CN=…' for a certificate" >&2; exit 2 ;;
esac
shift 2
[ $# -gt 0 ] || { echo "acls.sh: the options of kafka-acls.sh are missing: --bootstrap-server HOST:PORT …" >&2; exit 2; }

if [ "${REMOVE:-}" = 1 ]; then verb=--remove force=--force; else verb=--add force=; fi
printf '%s\n' "$rights" | while read -r of kind pattern name operations; do
    [ "$of" = "$role" ] || continue
    case "$name" in
        =*) name=${name#=} ;;
        job.JOB*) name=${PREFIX:-}lowmark.v1.job.${JOB:-lowmark}${name#job.JOB} ;;
        *) name=${PREFIX:-}lowmark.v1.$name ;;
    esac
    given=
    for operation in $operations; do given="$given --operation $operation"; done
    # shellcheck disable=SC2086  # words on purpose
    "${KAFKA_ACLS:-kafka-acls.sh}" "$@" $verb $force --allow-principal "$principal" $given \
        "--$kind" "$name" --resource-pattern-type "$pattern" </dev/null
done
