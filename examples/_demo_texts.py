"""The building material of the demo conversation: words, code, logs and pages with `$slots` that the seed fills.

Owns: templates and word lists. Must never: hold logic; `demo_transcript` fills them.

A slot is `$name` or `${name}`: what the caller gives under that name, a fresh number of three digits for `$int3`, seven
hexadecimal digits for `$hex7`, otherwise a word from the pool of that name. One filling uses one word for one slot;
`$noun2` is a second word from the same pool, and `$Noun` is the word of `$noun` in CamelCase.
"""

from __future__ import annotations

__all__ = [
    "CHANGES",
    "CLASSES",
    "CLASS_FIELDS",
    "COMMAND_LOGS",
    "COMMITS_MADE",
    "COMMITS_SEEN",
    "DAY_FACTS",
    "DOCSTRINGS",
    "DOC_SENTENCES",
    "FAILURES",
    "FILE_LINES",
    "FOLLOW_UP_FACTS",
    "FUNCTION_HEADS",
    "PATHS",
    "POOLS",
    "RETURNS",
    "SAY",
    "STATEMENTS",
    "TEST_BODIES",
    "TODO_ITEMS",
]

POOLS: dict[str, tuple[str, ...]] = {
    "noun": tuple(
        "invoice payment customer credit_note ledger_line line_item statement reminder tax_rate discount refund"
        " subscription plan account mandate transfer balance sequence location contact webhook notice bundle export"
        " period receipt allocation dispute adjustment deposit".split()
    ),
    "verb": tuple(
        "apply build collect compute confirm derive find group list load mark match merge open post prepare price"
        " queue reconcile record release render reserve resolve settle split store sum validate verify void".split()
    ),
    "field": tuple(
        "amount_cents tax_cents due_days attempts line_count open_cents paid_cents rate_bp position version"
        " credited_cents fee_cents retry_after grace_days page_size priority net_cents gross_cents".split()
    ),
    "state": tuple("draft open issued paid void pending settled expired queued delivered rejected".split()),
    "adverb": tuple("once again early late twice safely exactly quietly".split()),
    "thing": (
        "credit note",
        "payment plan",
        "dunning letter",
        "bank transfer",
        "tax report",
        "customer statement",
        "direct debit",
        "price list",
        "refund request",
        "monthly export",
    ),
    "area": ("billing/", "store/", "jobs/", "clients/", "the statement job", "the export", "api/payments.py"),
    "word": ("due date", "balance", "state", "tax amount", "currency", "delivery time", "reference"),
    "why": (
        "a retry must not change the outcome",
        "the auditors compare both columns",
        "two workers may hold the same row",
        "the bank reports in local time",
        "older rows have no value here",
        "the caller has checked the currency",
        "the sum must equal the printed total",
        "callers rely on the order",
        "a rollback must leave no trace",
        "the job may be killed between two rows",
        "the printed document is final",
        "the mailer sends at most once",
        "half a cent has no meaning",
        "replicas lag behind by seconds",
        "the customer may have moved meanwhile",
        "an empty list is a valid answer",
        "support needs to see why",
        "the year changes at midnight UTC",
        "imports from 2019 have gaps",
        "the lock is already held",
        "the total is checked again at the border",
        "a missing rate means no tax",
        "the first delivery wins",
        "the feed repeats itself on Mondays",
        "the cursor must be unique",
        "the receipt was printed before",
        "nobody reads it after a year",
    ),
    "level": ("INFO", "INFO", "INFO", "DEBUG", "WARNING"),
    "part": ("api.invoices", "api.payments", "jobs.scheduler", "jobs.backfill", "store.outbox", "clients.bank", "http"),
    "method": ("GET", "GET", "POST", "PATCH"),
    "code": ("200", "200", "201", "204", "404", "409", "422"),
    "pod": ("ledgerd-7c9f", "ledgerd-5b21", "ledgerd-e08d", "ledgerd-44aa", "ledgerd-d3f6", "ledgerd-90be"),
    "author": ("dev-a", "dev-b", "dev-c", "release-bot"),
}

DAY_FACTS: dict[str, str] = {
    **dict.fromkeys(("shafix", "shacredit", "shamigr", "shaflaky", "shareview", "shamain", "sharctwo"), "$hex7"),
    **dict.fromkeys(("flakes", "same", "hbcases", "hookms", "lockms", "upg"), "1$int1"),
    **dict.fromkeys(("negcases", "cncases", "rolled", "pdfms", "planms", "smoke", "pb"), "2$int1"),
    "ntests": "11$int2", "ntestsend": "12$int2", "suite": "7$int1.$int1", "rows": "1,842,$int3", "oddrows": "$int2",
    "b1": "4$int1", "b5": "21$int1", "b20": "118$int1", "lag": "11.$int1", "laglow": "1.$int1", "fast": "1.$int1",
    "prorcents": "6$int1", "pa": "3$int1", "digest": "$hex12",
}  # fmt: skip
FOLLOW_UP_FACTS: dict[str, str] = {
    "ticket": "5$int2", "many": "$int3", "less": "$int2", "few": "$int1", "customer": "$int4",
}  # fmt: skip

PATHS = tuple(
    "README.md CHANGELOG.md Makefile pyproject.toml deploy/staging.yaml deploy/production.yaml deploy/alerts.yaml"
    " docs/events.md docs/migrations.md docs/rounding.md"
    " migrations/versions/0044_statement_index.py migrations/versions/0045_mandates.py"
    " migrations/versions/0046_outbox_attempts.py scripts/batch_probe.py scripts/rounding_table.py"
    " scripts/sample_data.py"
    " src/ledgerd/cli.py src/ledgerd/clock.py src/ledgerd/logs.py src/ledgerd/settings.py".split()
) + tuple(
    f"src/ledgerd/{package}/{name}.py"
    for package, names in (
        ("api", "auth customers errors health invoices pagination payments webhooks"),
        ("billing", "discounts dunning money numbering proration rounding tax totals"),
        ("store", "customers invoices locks models outbox payments session"),
        ("jobs", "exports reminders retries scheduler statements"),
        ("clients", "bank mailer pdf rates"),
    )
    for name in names.split()
) + tuple(
    f"tests/{name}.py"
    for name in (
        "conftest test_invoices test_logs test_migrations"
        " test_models test_numbering test_outbox test_pdf test_proration test_rounding test_statements"
        " test_tax test_totals test_webhooks"
    ).split()
)  # fmt: skip

FUNCTION_HEADS = (
    "def ${verb}_$noun(session: Session, $noun: $Noun, *, $field: int = $int2) -> $Noun2:",
    "def ${verb}_${noun}_$field($noun: $Noun, $field: int, clock: Clock) -> int:",
    "async def ${verb}_${noun}s(session: Session, $noun: $Noun, $field: int) -> list[$Noun2]:",
    "def _${verb}_${noun}_$adverb($noun: $Noun, $field: int = $int1) -> $Noun2 | None:",
    "def ${verb}_${state}_$noun($noun: $Noun, *, $field: int, dry_run: bool = False) -> int:",
)
DOCSTRINGS = (
    "$Verb the $noun by its $field; $why.",
    "What is left of the $field of one $noun, or an error when it is $state.",
    "Like the API, but for one $noun: $why.",
    "Every $noun2 of a $noun whose $field is not yet $state.",
    "Called once per $noun by the scheduler. Note that $why, and that $why2.",
    "Takes a $noun and gives the $field it should have had; $why.",
)
STATEMENTS = (
    "if $noun.$field < $field:\n    raise LedgerError(f\"$noun {$noun.id}: $field is below {$field}\")",
    "if $noun.status == \"$state\":\n    log.info(\"$noun is $state already\", extra={\"id\": $noun.id})",
    "total = sum(line.$field2 for line in $noun.lines)",
    "if $noun.$field != $field:\n    # Not an assert: $why.\n    raise Mismatch(expected=$noun.$field, actual=$field)",
    "number = next_number(session, prefix='LE', table='number_series', year=$noun.issued_at.year)",
    "replay = session.get($Noun2, $noun.request_id)\nif replay is not None:\n    return replay",
    "rate = Decimal($noun.rate_bp) / 10_000\nshown = float(rate)  # for display only",
    "days = prorate_days($noun.period, until=clock.utcnow(), at_least=$int1)",
    "$noun2 = session.get($Noun2, $noun.${noun2}_id, with_for_update=True)",
    "oldest = sorted($noun.${noun2}s, key=lambda item: (item.created_at, item.id))[:$int2]",
    "if $noun.refund_of is not None:\n    $field = -abs($field)",
    "${noun2}s = session.scalars(\n    select($Noun2).where($Noun2.${noun}_id == $noun.id).order_by($Noun2.id)\n).all()",
    "with session.begin_nested():\n    lock_row(session, $Noun, $noun.id)\n    $noun.version += 1",
    "now = clock.utcnow()\nif $noun.expires_at is not None and $noun.expires_at <= now:\n    return expire($noun, at=now)",
    "for position, line in enumerate($noun.lines, start=1):\n    line.position = position\n"
    "    line.$field2 = round_cents(line.quantity * line.$field3, HALF_EVEN)",
    "remainder = $noun.$field2 - $field * ($noun.$field2 // max($field, 1))",
    "key = ($noun.entity, $noun.issued_at.year, \"$state\")",
    "by_customer: dict[int, list[$Noun2]] = {}\nfor ${noun2} in $noun.${noun2}s:\n"
    "    by_customer.setdefault(${noun2}.customer_id, []).append(${noun2})",
    "try:\n    ${noun2} = $noun.${noun2}s[$field]\nexcept IndexError:\n    log.warning(\"$noun has no $noun2 %d\", $field)\n"
    "    ${noun2} = None",
    "# $why, so the limit is applied here and not in the query.\nlimit = min($field, $int3)",
    "outbox.append(session, \"$noun.$state\", {\"id\": $noun.id, \"$field2\": $noun.$field2})",
    "if not is_whole_cents($noun.$field2):\n    raise TypeError(\"$field2 must be an integer in cents\")",
    "started = clock.monotonic()\nattempt = retry(lambda: $noun.refresh(session), times=$int1)\n"
    "metrics.observe(\"${noun}_${verb}_seconds\", clock.monotonic() - started)",
    "share = $noun.$field2 * $field // $int4\n$noun.$field3 = max(share, 0)",
    "match $noun.status:\n    case \"$state\" | \"$state2\":\n        allowed = True\n    case _:\n        allowed = $noun.$field > 0",
    "missing = [name for name in (\"$field\", \"$field2\", \"$field3\") if getattr($noun, name) is None]\n"
    "if missing:\n    raise Incomplete($noun.id, missing)",
)  # fmt: skip
RETURNS = (
    "return $noun.$field2 - $field",
    "return $Noun2(${noun}_id=$noun.id, $field=$field, created_at=clock.utcnow())",
    "session.flush()\nreturn $Noun2.from_$noun($noun)",
    "return next((item for item in $noun.${noun2}s if item.$field >= $field), None)",
    'return [item for item in $noun.${noun2}s if item.status != "$state"]',
    "return max(0, min($noun.$field2, $field * $int3))",
    'log.debug("$verb $noun: %d", $field)\nreturn $field',
)
CLASSES = (
    '@dataclass(frozen=True, slots=True)\nclass $Noun$State:\n    """A $noun that is $state; $why."""\n',
    'class $Verb$Noun(BaseModel):\n    """Body of the request that asks to $verb one $noun."""\n',
    'class $Noun${Noun2}Error(LedgerError):\n    """The $noun and its $noun2 disagree, and $why."""\n',
)
CLASS_FIELDS = (
    "$field: int", "$field2: int = $int2", "${noun2}_id: UUID", "status: Literal[\"$state\", \"$state2\"]", "created_at: datetime",
    "note: str = \"\"", "$noun2: $Noun2 | None = None", "lines: tuple[$Noun2, ...] = ()",
)  # fmt: skip
TEST_BODIES = (
    "$noun = make_$noun($field=$value)\n$noun2 = ${verb}_$noun($noun)\nassert $value == $noun2.$field\n"
    "assert '$state' == $noun2.status",
    "with pytest.raises(LedgerError) as caught:\n    ${verb}_$noun(make_$noun(status='$state'), $field=-$int1)\n"
    "assert '$field' in str(caught.value)",
    "clock = FrozenClock('2025-0$int1-1${int1}T0$int1:30:00Z')\n$noun = ${verb}_$noun(session, clock=clock)\n"
    "assert clock.utcnow() == $noun.created_at",
    "${noun}s = [make_$noun($field=value) for value in ($value, 0, -$value)]\n"
    "assert [-$value, 0, $value] == sorted(item.$field for item in ${verb}_all(${noun}s))",
    "first = client.post('/v1/${noun}s', json={'$field': $value, '$field2': 0})\n"
    "again = client.post('/v1/${noun}s', json={'$field': $value, '$field2': 0})\nassert first.json() == again.json()",
    "rows = session.execute(text('select count(*) from ${noun}s where $field > $int3')).scalar_one()\n"
    "assert $int2 == rows",
    "body = client.get('/v1/${noun}s?limit=$int2', headers=as_user('$state')).json()\n"
    "assert {'$noun', '$noun2'} == {item['type'] for item in body['items']}\nassert $value == body['$field']",
)
CHANGES = (
    'if $field < 0:\n    raise LedgerError(f"$field is negative: {$field}")',
    'log.info("$verb $noun", extra={"$field": $field})',
    "# $why.\n$field = int($field)",
    "session.refresh($noun, with_for_update=True)",
    "mode = HALF_EVEN  # $why",
    "if $noun is None:\n    return None",
    'outbox.append(session, "$noun.$state", {"id": $noun.id})',
    "$field = min($field, $noun.$field2)",
)
FAILURES = (
    "AssertionError: assert $int4 == $value\n +  where $value = $Noun(id=$int4, status='$state').$field",
    "ledgerd.billing.errors.LedgerError: $noun $int5: $field is below $int2",
    "TypeError: ${verb}_$noun() got an unexpected keyword argument '$field'",
    'sqlalchemy.exc.IntegrityError: duplicate value violates unique constraint "uq_${noun}s_$field"\n'
    "DETAIL:  Row ($field, year)=($int4, 2025) already exists.",
    "AttributeError: '$Noun' object has no attribute '$field'",
)

COMMAND_LOGS: dict[str, tuple[str, ...]] = {
    "explain": (
        "   ->  Index Scan using ix_${noun}s_$field on ${noun}s  (cost=0.4$int1..$int4.$int2 rows=$int4 width=$int2)"
        " (actual time=0.$int3..$int2.$int3 rows=$int4 loops=1)",
        "         Filter: (($field > $int4) AND (status <> '$state'::text))",
        "         Buffers: shared hit=$int5 read=$int3 dirtied=$int2",
        "   ->  Nested Loop  (cost=$int2.$int2..$int5.$int2 rows=$int3 width=$int2) ${noun}s to ${noun2}s by $field",
    ),
    "\\d": (
        " ${noun}_$field | bigint |  | not null | $int2 | plain |  | $why",
        "    'ix_${noun}s_${field}_$field2' btree ($field, $field2) WHERE status <> '$state'::text",
        "    'fk_${noun}_$noun2' FOREIGN KEY (${noun2}_id) REFERENCES ${noun2}s(id) ON DELETE RESTRICT",
        " ${noun}_${state}_at | timestamp with time zone |  |  |  | plain |  | set when the $noun is $state",
    ),
    "pg_stat": (
        " $hex8 | select $field, $field2 from ${noun}s where ${noun2}_id = ? | $int5 | $int2.$int3 | $int1.$int3",
        " $hex8 | update ${noun}s set $field = ? where id = ? and version = ? | $int4 | $int2.$int3 | $int1.$int3",
    ),
    "psql": (" $int6 | $state | $int5 | 2025-0${int1}-1${int1} 0${int1}:1${int1}:4${int1}.$int6+00 | $noun",),
    "mypy --strict": (
        "src/ledgerd/$module:$int2: error: Argument '$field' to '${verb}_$noun' has incompatible type 'float';"
        " expected 'int'  [arg-type]",
        "src/ledgerd/$module:$int3: error: Item 'None' of '$Noun | None' has no attribute '$field'  [union-attr]",
        "src/ledgerd/$module:$int3: note: '${verb}_$noun' defined here",
    ),
    "mypy": ("src/ledgerd/$module: $int2 definitions checked in $int2 ms, ${verb}_$noun inferred as '$Noun | None'",),
    "ruff check src tests": ("checked src/ledgerd/$module ($int3 lines, $int2 rules, cache $hex8): no findings",),
    "ruff": (
        "src/ledgerd/$module:$int3:$int2: F841 Local variable `$field` is assigned to but never used",
        "src/ledgerd/$module:$int2:5: B007 Loop control variable `$noun` not used within loop body",
        "tests/test_$noun.py:$int3:9: PT011 `pytest.raises(ValueError)` is too broad for the $noun2 case",
    ),
    "make image": (
        "#$int2 [build $int1/9] COPY src/ledgerd/$module: $int2.$int1 kB",
        "#$int2 [build $int1/9] RUN install ledgerd-$noun ($int3.$int1 kB) done in $int1.$int2 s",
        "  layer $hex12 pushed, $int2.$int1 MB, $int1.$int2 s",
    ),
    "make db": (
        "$time  INFO  running step $int2 on ${noun}s: $field, $int4 rows, lock held for $int2 ms",
        "$time  INFO  checked constraint ck_${noun}s_$field: valid",
    ),
    "make": (
        "$time  compared table ${noun}s: column $field unchanged ($int2 of $int2)",
        "$time  compared index ix_${noun}s_$field2: unchanged",
        "  checked templates/${noun}_$state.html: $int2 placeholders, $int3 lines",
    ),
    "--durations": (
        "$int1.$int2s call     tests/test_$noun.py::test_${verb}_${noun}_$state",
        "0.$int2s setup    tests/test_$noun2.py::test_${verb}_$field",
    ),
    "--count 1000": ("run $int3 of 1000: seed $int5, order $noun, $noun2, $noun3: passed in 0.$int2 s",),
    "--count": (
        "run $int3 of the loop: seed $int5, order $noun, $noun2, $noun3: passed in 0.$int2 s",
        "run $int3 of the loop: seed $int5, order $noun, $noun2: passed in 0.$int2 s, $int1 workers",
        "run $int3 of the loop: seed $int5: FAILED, $noun $int4 before $noun2 $int4, created_at $time",
    ),
    "curl": (
        '{"id": $int5, "type": "$noun", "status": "$state", "$field": $int5, "updated_at": "$time"}',
        '{"id": $int4, "type": "$noun2", "lines": [{"$field": $int4, "$field2": $int3}], "trace": "$hex8"}',
    ),
    "metrics": (
        "$time  route=/v1/${noun}s method=$method p50=$int2.$int1 p95=$int2.$int1 p99=$int3.$int1 n=$int4",
        "$time  route=/v1/$noun/{id}/$verb code=$code count=$int3 share=0.0$int2",
    ),
    "batch": ("batch $int2: $int4 rows in $int3 ms, lag $int1.$int1 s, next id $int6",),
    "python": (
        "case $int3 ($verb $noun, $state): expected $value, got $value, $field=$int3, mode=half_even",
        "case $int3 ($verb $noun, $state): old $int4, new $int4, $why",
    ),
    "": (
        "$time $level ledgerd.$part pod=$pod $verb $noun id=$int5 $field=$int4 took=${int2}ms",
        "$time $level ledgerd.$part pod=$pod $method /v1/${noun}s/$int5 $code ${int3}ms trace=$hex8",
        '{"ts": "$time", "level": "$level", "logger": "ledgerd.$part", "event": "$noun.$state", "id": $int6,'
        ' "$field": $int4, "worker": $int1}',
        "$time WARNING ledgerd.$part pod=$pod $noun $int5 retried $adverb: $why",
        "$time INFO ledgerd.$part batch=$int3 rows=$int4 lag=$int1.$int1 cursor=$int6",
    ),
}
"""Output of a command: by the first of these parts that the command contains."""
FILE_LINES: dict[str, tuple[str, ...]] = {
    ".yaml": (
        "${noun}_$field: $int3", "$noun:\n  $field: $int2\n  $field2: $int3", "# $why\n${verb}_${noun}s: true",
        "- name: $noun-$verb\n  every: ${int1}m\n  limit: $int3", "alert_${noun}_$field: {p95_ms: $int3, for: ${int1}m}",
    ),
    ".toml": ("$noun-$verb = \"$int1.$int2\"", "[tool.ledgerd.$noun-$noun2]\n$field = $int3", "# $why"),
    "Makefile": ("$verb-$noun:  ## $verb every $noun that is $state\n\tledgerd $noun $verb --limit $int3\n",),
    "migrations/": (
        "    op.add_column(\"${noun}s\", sa.Column(\"$field\", sa.BigInteger(), nullable=True))",
        "    op.create_index(\"ix_${noun}s_$field\", \"${noun}s\", [\"$field\", \"$field2\"], unique=False)",
        "    op.create_check_constraint(\"ck_${noun}s_$field\", \"${noun}s\", \"$field >= 0\")",
    ),
}  # fmt: skip
COMMITS_MADE: dict[str, str] = {
    "LED-398": "$shafix",
    "LED-412": "$shacredit",
    "LED-415": "$shamigr",
    "LED-377": "$shaflaky",
    "LED-405": "$shareview",
}
COMMITS_SEEN = tuple(
    f"$hex7 2025-02-1$int1 $author  {subject}"
    for subject in (
        "LED-$int3: $verb ${noun}s by $field",
        "LED-$int3: stop $adverb when a $noun is $state",
        "LED-$int3: $verb $noun before $noun2",
        "Document the $noun $field",
        "Test the $state $noun",
        "Bump $noun client to 1.$int2",
        "Release 2.$int1.$int1",
    )
)
DOC_SENTENCES = (
    "A $noun that is $state keeps its $field until the period closes.",
    "Since release 2.$int1 the service can $verb a $noun without its $noun2, because $why.",
    "Use `${verb}_$noun` with a $field between $int1 and $int3; larger values are cut to the limit.",
    "If the $thing has no $word, take the one of the customer and note it in the log.",
    "The worked case: $field $int4, $field2 $int3, result $int4, difference 0.",
    "Do not $verb a $noun by hand; $why.",
    "The $word of a $thing is fixed at the moment it becomes $state and does not change $adverb after that.",
    "Rows with $field above $int4 go to a queue of their own, at most $int2 in flight.",
    "When replication lag passes $int2 s, stop, wait for $int2 s and continue at the last $noun.",
    "For a $thing the rule is the same as for a $thing2, except that the $word comes from the $noun.",
    "See https://docs.example.com/$noun/$verb for the fields and https://docs.example.com/faq/$noun2 for questions.",
    'Example: `{"$noun": {"status": "$state", "$field": $int4}}`.',
)

SAY: dict[str, tuple[str, ...]] = {
    "list_dir": ("The layout of @ first.", "Let me see what lives in @.", "Which files are in @?"),
    "read_file": (
        "Reading @ before I say anything about it.", "The rule should be in @.",
        "@ is where this is decided, so I read that part.", "I want the exact wording in @.",
        "Next @: I need to see who calls whom.", "Checking @ for an assumption about $field.",
        "Before a change, the current state of @.", "I have a suspicion about @, let me look.",
    ),
    "grep": (
        "Who else uses @?", "Searching for @ so that no caller is missed.", "All the places that mention @.",
        "I count the uses of @ first.", "A quick search for @.",
    ),
    "edit_file": (
        "Small change in @: the check goes where the value enters.", "Editing @; $why.",
        "Now @, one place only.", "This belongs in @, because $why.", "Changing @ and nothing beside it.",
        "The guard in @ comes before the write.", "I adjust @ to match.",
    ),
    "run_tests": (
        "Running @.", "Does @ agree?", "Now the proof: @.", "@, with verbose names.",
        "I expect @ to tell me whether the $field is right.", "Tests for this part: @.",
    ),
    "run_command": (
        "Next: `@`.", "I run `@` and read the output.", "`@` will show the numbers.",
        "Measuring with `@`.", "Let me check with `@`, since $why.",
    ),
    "git": ("git @.", "The history should tell: git @.", "Now git @.", "Version control: @."),
    "web_fetch": (
        "The page at @ has the rule.", "Looking it up: @.", "I want the source, so I read @.",
    ),
    "todo": ("Writing that down.", "Updating the list.", "I keep the plan current.", "Notes before I go on."),
}  # fmt: skip
TODO_ITEMS: dict[str, tuple[str, ...]] = {
    "explore": ("read the layout", "find floats in money code", "baseline of the suite", "plan the day"),
    "rounding": ("LED-398 find the cause", "LED-398 explicit mode", "LED-398 negative amounts", "merge request !341"),
    "credit": ("LED-412 model", "LED-412 number series", "LED-412 API", "LED-412 PDF and statement", "LED-412 webhook"),
    "amount": ("LED-415 add the column", "LED-415 backfill", "LED-415 index", "LED-431 drop the column in 2.17"),
    "flaky": (
        "LED-377 reproduce",
        "LED-377 prove the cause",
        "LED-377 order per invoice",
        "LED-440 cursors on created_at",
    ),
    "review": ("review !338", "review !339", "merge train"),
    "staging": ("tag and image", "schema 0046 to 0050", "roll out", "smoke tests", "backfill", "handover"),
    "later": ("reproduce the report", "smallest failing test", "fix", "note for the changelog"),
}
