"""The screenplay of the demo conversation: what the person asks, what the agent does, what it answers.

Owns: prose, in the order of the day. Must never: hold logic; `demo_transcript` reads it.

A turn opens with `== chapter flags`. Then come the person's words, one or more `- ` lines of moves, and the agent's
closing words. In a move line `|` separates steps and `+` joins the parallel calls of one step; a move that ends in
`!` has a large result. Flags: `key` stays in short transcripts, `protected` marks the person's message as such.
`$name` is a detail that the seed decides.
"""

from __future__ import annotations

__all__ = ["FOLLOW_UPS", "STORY", "SYSTEM"]

SYSTEM = """\
You are a coding agent working in the repository of ledgerd, an invoicing service. You act through tools and report in
plain sentences.

How you work:
- Read before you change. Quote file and line when you make a claim about the code.
- Keep a change as small as its ticket. Anything else you notice goes into the todo list, not into the diff.
- Run the narrowest test that can prove you wrong, then the whole suite before a commit.
- Independent calls go out together, at most four at a time.
- When a command would delete data, leave the staging environment or touch another team's service, ask first.

Tools: read_file(path, offset), list_dir(path), grep(pattern, path), edit_file(path, old, new), run_tests(target,
flags), run_command(command), git(args), web_fetch(url), todo(action, items).

Environment: Python 3.12, PostgreSQL 16.2, repository version 2.14.3, default branch main, CI at
https://ci.example.com, staging at https://ledgerd.staging.example.com. The clock of the sandbox is UTC.
"""

STORY = """
== explore key
Morning. You have the ledgerd checkout in front of you; I would like to get through a few tickets with you today.
Standing rules, and they hold for everything we do:
1. Never touch migrations/ by hand. Use `make migration name=...` and leave the generated file alone.
2. Amounts are integers in cents, everywhere. No floats, no Decimal in the API layer.
3. All timestamps are UTC and timezone-aware; use ledgerd.clock, never datetime.now().
4. One branch per ticket, named led-<number>-<slug>. Nobody pushes to main.
5. Do not add dependencies without asking me.
Start by looking around and tell me how the thing is put together.

- ls . + read README.md + read pyproject.toml | ls src/ledgerd + ls tests | read settings.py + read api/invoices.py
- grep amount_cents src + git log | todo

I have the shape of it. ledgerd is a layered service: api/ validates and serialises, billing/ holds the arithmetic and
the rules, store/ talks to PostgreSQL through one session factory, jobs/ runs on a scheduler, clients/ wraps the bank,
the mailer, the PDF renderer and the exchange rates. Nothing in billing/ imports store/, which makes it easy to test.
I noted your five rules. Migrations are at revision 0046; the package is 2.14.3; CI runs lint, types and $ntests
tests.

== explore key protected
One more, and please keep this in mind whatever else happens today: invoice numbers are gapless per legal entity and
year (LE1-2025-000123). Auditors check that. A number, once drawn, is never reused and never skipped, not even when a
request fails half way. If any change could break this, stop and ask me before you write it.

- read billing/numbering.py + read store/locks.py + grep next_number src | read tests/test_numbering.py

Understood: gapless per legal entity and year, never reused, never skipped, and I stop and ask when in doubt. Today
numbering takes a row lock on number_series inside the transaction that inserts the invoice, so a rollback gives the
number back before anyone has seen it. The property rests on that single transaction; I will treat it as untouchable.

== explore
How does an invoice travel from draft to paid? Follow one through the code, I want to know where state changes happen.

- grep status src + read billing/totals.py | read store/invoices.py! | read api/payments.py + read jobs/reminders.py
- read store/outbox.py

Five states: draft, open, partially_paid, paid, void. Only store/invoices.py writes the column, through one function
that checks the allowed transitions and appends an outbox row in the same transaction. Payments never set the state
directly; they post a ledger entry and ask for a recalculation. The reminder job reads, it does not write. The one
surprise is that void is allowed from partially_paid, which looks unintended; I put it on the list as a question.

== explore
Where is money represented? I suspect a few floats survived the clean-up last year.

- grep float src + grep Decimal src + grep round src + read billing/discounts.py | read billing/money.py
- cmd mypy src
- read clients/rates.py

Three leftovers. billing/discounts.py multiplies by a float percentage, clients/rates.py parses the feed into float,
and the statement job formats with float division. The first can change a stored amount, so it breaks rule 2 for real;
the other two only touch display and lookup. I did not change anything yet. Basis points as integers would replace the
percentage without a schema change: 7.5 % becomes 750.

== explore
Run the complete suite once so that we have a baseline, and tell me what is slow.

- fail tests! | cmd pytest --durations=15 + git status | read tests/conftest.py

Baseline: $ntests tests, 1 failed, 4 skipped, wall time $suite s. The failure is tests/test_rounding.py, the one you
have in LED-398. The slowest fifteen take 41 % of the time, nearly all of it in fixtures that create a schema per
test. A template database would save about 20 s per run. I have not started on that, it is not one of today's tickets.

== explore
Good. Write the plan down. Order: LED-398 rounding, LED-412 credit notes, LED-415 the amount column, LED-377 the flaky
outbox test, then a review for the proration branch, then staging. Lunch somewhere in between.

- todo | git log + git branch

The plan is in the todo list in that order, with the void question and the three float leftovers as separate notes at
the end. Before each ticket I will start from a fresh main and say which files I expect to touch.

== rounding
LED-398 then. test_rounding fails on CI since Friday, on my machine it passes. Find out why before you fix anything.

- git checkout -b led-398-half-even + fail tests/test_rounding.py
- read billing/rounding.py + read tests/test_rounding.py
- git log billing/rounding.py + grep HALF_EVEN src | read billing/tax.py | cmd python -c 'import decimal'

Found it. The test sets no decimal context, and billing/rounding.py reads the rounding mode from the thread's context.
CI runs with four workers; a worker that has run the tax tests first is left in ROUND_HALF_UP, because billing/tax.py
changes the global context and never restores it. On your machine the order is different. So the test is right and the
code is order-dependent: 2.5 cents became 3 on the worker and 2 for you.

== rounding
What should the rule be? Check what our tax handbook page says before we choose.

- web docs.example.com/handbook/tax/rounding! | grep round_cents src + read docs/rounding.md
- read billing/proration.py

The handbook asks for half-even on each line, then a plain sum, and it gives $hbcases worked cases. It also says that
the tax of a line is rounded once, after discounts. We do all of that except the mode. Two callers round the sum
again, which is harmless while every line is already whole, but it hides mistakes.

== rounding key
Decision: half-even per line, mode passed explicitly, no use of the decimal context at all. Reason: order of tests or
requests must not change an amount. Go ahead.

- git checkout led-398-half-even + edit billing/rounding.py + edit billing/tax.py | test tests/test_rounding.py | edit billing/totals.py
- test tests/test_tax.py + test tests/test_totals.py | git diff

Done on led-398-half-even. round_cents now takes the mode as a required argument, tax.py no longer touches the global
context, and totals.py passes half-even by name. I removed the second rounding of the sum in both callers, since it
could only ever hide an error. Rounding, tax and totals tests pass in every order I tried (20 shuffles).

== rounding
What about negative amounts? Refund lines go through the same function.

- grep refund src + read billing/money.py | edit tests/test_rounding.py | test tests/test_rounding.py
- cmd python scripts/rounding_table.py

Half-even is symmetric, so -2.5 cents gives -2 and 2.5 gives 2; a refund of a line therefore always cancels it
exactly. I added $negcases cases for negative amounts, among them -0.5, -1.5 and -2.5, and one that adds a line to its
refund and expects zero. All pass. Half-up would have failed the last one: that is one more reason for the decision.

== rounding
Fine. Run everything, commit, push the branch.

- test tests! | cmd ruff check src tests + cmd mypy src | git commit -am "LED-398: explicit half-even rounding"
- git push -u origin led-398-half-even

Everything passes: $ntests tests in $suite s, lint and types clean. Commit $shafix is on led-398-half-even and pushed;
CI run 4471 has started. The diff is 61 lines added and 38 removed over five files, and nothing in migrations/.

== rounding
Write me a description for the merge request, short, with the cause first.

- git show $shafix + read CHANGELOG.md | edit CHANGELOG.md

LED-398: amounts no longer depend on test or request order. Cause: tax.py changed the process-wide decimal context to
half-up and rounding.py read it back. Now the mode is an argument and every caller names half-even, as the handbook
asks. Behaviour change: lines that end in exactly half a cent round to the even cent also after a tax calculation.
I added one line under "Fixed" in CHANGELOG.md for 2.15.0. Merge request !341 carries this text.

== credit
Next is LED-412, credit notes. A customer can get a credit note for all or part of an open or paid invoice. It has its
own number series (CN1-2025-000001), its own PDF, and shows up on the statement. Partial means chosen lines with
amounts. Success: an issued credit note reduces the open balance, cannot exceed the invoice, and the books stay
balanced. Look at what exists and propose a model. No code yet.

- grep credit src + read store/models.py! | read billing/dunning.py + read jobs/statements.py + read api/invoices.py
- web docs.example.com/handbook/credit-notes | todo

Two ways to model it. A: negative invoices, which reuses the table, the PDF and the statement, but mixes two number
series in one column and makes the state machine lie (a negative invoice is never "paid"). B: tables credit_notes and
credit_note_lines with a foreign key to the invoice line, a series of their own and two states, draft and issued. I
recommend B. It costs one migration and about 400 lines, and it leaves invoice numbering alone, which matters for the
gapless rule you gave me.

== credit
B. Reason for the record: negative invoices would draw from the invoice series, and the auditors would see holes in
both. Also decided: a credit note once issued is immutable, corrections are a second credit note.

- git checkout -b led-412-credit-notes | read store/customers.py + read billing/numbering.py | edit store/models.py
- cmd make migration name=credit_notes | test tests/test_models.py

The branch is led-412-credit-notes. Models are in place, and `make migration` generated 0047_credit_notes; I read it
and left it as it came. Two tables, one check constraint (amount_cents > 0) and a unique index on (series, year,
number). Immutability is enforced in the store layer: update on an issued note raises ImmutableRecord.

== credit
Numbering: same machinery, or a copy?

- read billing/numbering.py + read tests/test_numbering.py | edit billing/numbering.py | edit tests/test_numbering.py
- test tests/test_numbering.py | grep number_series src

Same machinery. next_number takes the series prefix as an argument now, with "LE" and "CN" as the only values
accepted. The row lock is per (prefix, entity, year), so issuing credit notes never waits for invoices. I ran the
concurrency test with both series: 400 numbers from 16 threads, with $rolled forced rollbacks, 0 gaps and 0 repeats in
either series.

== credit
Now the arithmetic: how much may still be credited on a line, and what happens to tax?

- read billing/tax.py + read billing/totals.py | edit billing/totals.py + edit billing/tax.py
- fail tests/test_credit_notes.py
- edit billing/totals.py | test tests/test_credit_notes.py

Creditable is the line amount minus everything already credited on it, never below zero. Tax is taken in proportion
and rounded once per line with half-even; the last credit on a line takes the remainder so that the sum is exact. My
first version rounded the remainder too and was off by one cent for 3 of $cncases cases; the test shows it (1999 cents
split in three).

== credit
API please: POST /v1/invoices/{id}/credit-notes and POST /v1/credit-notes/{id}/issue. Same error shapes as invoices.

- read api/errors.py + read api/pagination.py + read api/auth.py | edit api/invoices.py | edit api/credit_notes.py
- test tests/test_api_credit_notes.py | cmd curl -s localhost:8080/v1/credit-notes

Both endpoints are there. Creating gives 201 with the draft, issuing gives 200 with the number. Errors follow the
existing shape: 404 unknown_invoice, 409 already_issued, 422 exceeds_creditable with the amount that is left in cents.
Permission is billing:write, as for invoices. List and read use the normal pagination, limit 50, at most 200.

== credit key
For the webhook credit_note.issued: send it synchronously inside the request, I want the caller to see a failure at
once.

- git checkout led-412-credit-notes + read api/webhooks.py! + read store/outbox.py | edit api/credit_notes.py | test tests/test_webhooks.py

Done as you asked: issue sends credit_note.issued inside the request, timeout 3 s, and answers 502 webhook_failed when
the receiver does not accept it. I want to name the cost: the number is drawn before the call, so a failing receiver
rolls the transaction back and the client must repeat. The gapless rule holds, because the rollback returns the
number; but one slow receiver now holds the lock of the series for up to 3 s.

== credit
What if the client repeats the POST after a timeout? I do not want two credit notes.

- grep request_id src + read store/payments.py | edit api/credit_notes.py + edit store/models.py
- cmd make migration name=credit_note_request_id | test tests/test_api_credit_notes.py

Creation now requires a request_id (a UUID from the client), unique per customer. A repeat with the same body returns
the first draft with 200 instead of 201; a repeat with another body gives 409 request_id_reused. The migration is
0048_credit_note_request_id, generated. I tested 50 parallel repeats: one row, 49 replays.

== credit
The PDF next. Reuse the invoice template where you can.

- read clients/pdf.py + ls src/ledgerd/clients | web docs.example.com/renderer/templates | edit clients/pdf.py
- test tests/test_pdf.py + cmd make sample-pdf

The renderer takes a document kind now; the credit note shares header, address block and footer and has its own table.
It prints the number of the invoice it refers to and the sentence the handbook requires. Sample size is 48 kB against
47 kB for an invoice, and rendering takes $pdfms ms at p95 over 200 runs. No new dependency.

== credit
And the statement and the balance. Show me the numbers for a small example.

- read jobs/statements.py! | edit jobs/statements.py | test tests/test_statements.py
- cmd ledgerd statement --customer 1042

Customer 1042 in the sample data: invoices 1,250.00, payments 400.00, credit note 150.00, open balance 700.00, which
in cents is 125000 - 40000 - 15000 = 70000. The statement lists the credit note on its own line with its number.
Dunning uses the same balance, so a customer with a full credit no longer gets reminders; there was no test for that,
now there is.

== credit key
Correction, I was wrong about the webhook. Forget sending credit_note.issued synchronously: a slow receiver must not
hold the series lock. Use the outbox like every other event, and the API answers without waiting. This replaces what I
said before.

- read store/outbox.py + read api/credit_notes.py | edit api/credit_notes.py + edit store/outbox.py
- test tests/test_webhooks.py + test tests/test_outbox.py | git diff! | git commit -am "LED-412: credit notes"

Changed. The synchronous call and its 502 are gone; issuing writes an outbox row in the same transaction and returns.
The worker delivers with the usual retries (1, 5, 25, 125 minutes). So the earlier decision is revoked, and the reason
is the lock: the series is now held for $lockms ms at p95 instead of up to 3 s. Commit $shacredit, merge request !342.

== amount
LED-415. invoices.amount is still numeric(12,2), the code converts at the border. I want amount_cents bigint and the
old column gone in the end. The table has $rows rows in production and must stay writable all the time. How?

- read store/invoices.py + grep amount store + ls migrations/versions | cmd psql -c '\\d+ invoices'!
- web docs.example.com/runbooks/online-migrations | read docs/migrations.md

Expand and contract, in three releases. 2.15: add amount_cents nullable, write both, backfill in batches. 2.16: read
the new column, add NOT NULL through a validated check constraint, which needs no long lock. 2.17: stop writing amount
and drop it (I suggest LED-431 for that). Adding a nullable column is instant on PostgreSQL 16; the backfill is the
only long part, and it can be stopped and resumed.

== amount
Agreed, three releases. Batch size? And how do we notice when replicas fall behind?

- cmd psql -c 'explain analyze update invoices' | read jobs/retries.py + read store/session.py
- cmd python scripts/batch_probe.py + web docs.example.com/runbooks/replication-lag

Measured on the staging copy: 1,000 rows take $b1 ms, 5,000 take $b5 ms, 20,000 take $b20 ms and then vacuum starts to
matter. I propose batches of 5,000 by primary key, a pause as long as the batch took, and a stop when replication lag
is over 10 s. With lock_timeout 2 s and statement_timeout 15 s no batch can hold anyone up. Estimated total: 52
minutes.

== amount
Do it. Remember rule 1 for the migration file.

- git checkout -b led-415-amount-cents + edit store/models.py | cmd make migration name=invoice_amount_cents
- edit store/invoices.py + edit jobs/backfill.py | test tests/test_backfill.py + test tests/test_invoices.py

`make migration` produced 0049_invoice_amount_cents: one ADD COLUMN, nothing else, not edited. Writes go to both
columns through a single property, so they cannot drift. The backfill is a job with a cursor in job_state; killing it
in the middle and starting again continues at the last committed batch, and a test does that with kill -9 at 12
places.

== amount
What does the backfill do with amounts that do not convert exactly? There were a few strange rows years ago.

- cmd psql -c 'select count(*) from invoices' | read jobs/backfill.py | grep amount tests + edit jobs/backfill.py
- test tests/test_backfill.py

numeric(12,2) always has whole cents, so the conversion is exact by type. What is strange is $oddrows rows with amount
NULL, all void drafts imported in 2019. The job counts them, leaves them NULL and writes their ids to the log; it does
not invent a zero. Before 2.16 can add NOT NULL somebody has to decide about those rows: that is a blocker for 2.16,
not for today, and it is on the list.

== amount
I will ask finance about those. Does the downgrade work?

- cmd make db-upgrade + cmd make db-downgrade | cmd psql -c '\\d invoices' | test tests/test_migrations.py!

Yes. Upgrade to 0049, write 500 invoices, downgrade to 0048, and the old column has all 500 with the same amounts,
since both are written. Upgrade again and the backfill fills what is missing. The test for round trips covers every
revision from 0040 on and takes 38 s, so it runs only in the nightly job and when migrations change.

== amount
Any index on amount that we lose?

- grep ix_ migrations + cmd psql -c 'select indexname from pg_indexes' | read store/invoices.py
- cmd psql -c 'explain select'! | edit store/models.py + cmd make migration name=ix_amount_cents | git diff

One: ix_invoices_customer_amount, used by the report "largest open invoices". I added its twin on amount_cents to the
model; generated as 0050_ix_amount_cents, created CONCURRENTLY as our template does by default. The plan of the report
stays an index scan, $planms ms before and after. The old index goes away with the column in 2.17.

== amount
OK. Commit, push, and put the plan for the three releases where people will find it.

- edit docs/migrations.md | test tests | git commit -am "LED-415: write amount_cents, backfill job" + git push
- todo

Commit $shamigr on led-415-amount-cents, merge request !343. docs/migrations.md has a table with the three releases,
what each may assume and how to step back from it. Follow-ups recorded: LED-431 drop the column in 2.17, and the open
question about the $oddrows NULL rows with finance as the owner.

== amount
Lunch. When I am back I want to see how long the backfill runs against the staging copy.

- cmd ledgerd jobs run backfill --dry-run | cmd ledgerd jobs run backfill! | cmd psql -c 'select count(*)'
- cmd tail -n 40 var/log/ledgerd.log

It ran to the end: 49 min 12 s, 369 batches of 5,000, no lock timeout, largest replication lag $lag s. It paused twice
by itself when the lag passed 10 s. After the run amount_cents is set for every row except the $oddrows known ones,
and a checksum over both columns agrees: difference 0.

== flaky
Back. LED-377: tests/test_outbox.py::test_drains_in_order fails about three times in two hundred runs. People re-run
CI and move on. I want the cause, not a retry decorator.

- git checkout -b led-377-outbox-order + read tests/test_outbox.py + read store/outbox.py
- cmd pytest tests/test_outbox.py --count 200! | grep order_by src + read clock.py

Reproduced: $flakes failures in 200 runs, always two neighbours swapped, never more. The drain orders by created_at.
My first hypothesis is that two rows get the same timestamp and PostgreSQL may return them in either order. I have not
proved it yet; next I print the timestamps of every swapped pair.

== flaky
Prove it. I have seen too many plausible stories about this test.

- edit tests/test_outbox.py | cmd pytest tests/test_outbox.py --count 400
- cmd psql -c 'select id, created_at from outbox'
- read jobs/scheduler.py | cmd python scripts/clock_resolution.py

Half right. In $same of the swapped pairs the timestamps are equal to the microsecond, but in the rest the later row
has an earlier time. created_at is taken by the application before the insert, so two workers can commit in the other
order. Equal stamps are a special case. So the cause is that we order by a time of the client, not by the order of the
commits.

== flaky
So what is the right order? Commit order is not something a sequence gives you either.

- web docs.example.com/db/ordering-guarantees | read store/locks.py + read store/session.py | grep with_for_update src

True: a sequence gives the order of allocation, and a row with a lower id can become visible later. What the consumers
need is less: events of one invoice in order. All writers of one invoice hold its row lock, so ids of that invoice are
allocated and committed in order. Ordering by (aggregate_id, id) is therefore correct per invoice, and no more is
promised.

== flaky
Decision: per-invoice order by id, and we say in the docs that there is no global order. Reason: nobody needs the
global one and it would cost a lock. Implement it, fix the test to check what we promise.

- edit store/outbox.py + edit tests/test_outbox.py | cmd pytest tests/test_outbox.py --count 1000
- edit docs/events.md
- test tests/test_webhooks.py + test tests/test_outbox.py | git commit -am "LED-377: order outbox per aggregate"

1,000 runs, 0 failures, and with the old ordering put back the new test fails in 31 of 1,000, so it can see the bug.
The docs now promise order per invoice and deny any other. Commit $shaflaky on led-377-outbox-order, merge request
!344. No migration was needed; the index on (aggregate_id, id) exists since 0031.

== flaky
Are there other places that sort by created_at and should not?

- grep created_at src + grep order_by src + grep sorted src | read jobs/exports.py | read api/pagination.py! | todo

Four more. Two are display only. Pagination of payments uses created_at as the cursor: with equal stamps a page can
skip a row, which is a real bug, small but visible. The export job has the same cursor. I wrote both up for a new
ticket with a failing test attached, and changed nothing, since LED-377 is about the outbox.

== flaky
File it as LED-440. While you are there: why does this test take four seconds?

- cmd pytest tests/test_outbox.py --durations=5 | read tests/conftest.py | edit tests/conftest.py
- test tests/test_outbox.py

It slept: the worker polls every 2 s and the test waits for two polls. The fixture passes a poll interval of 20 ms
now, and the file takes $fast s instead of 8.6 s. LED-440 is written: payment and export cursors skip rows with equal
created_at.

== flaky
Does anything downstream rely on global order? Check the exporter and the bookkeeping sync.

- grep outbox src + read jobs/exports.py | read clients/bank.py + read jobs/retries.py
- web docs.example.com/events/consumers

No. The exporter groups by invoice before it writes, and the sync is keyed by ledger entry and ignores what it has
seen. The consumer guide said "events arrive in order" without saying which; I changed that sentence to match the
promise.

== review
Now a review, please: branch led-405-proration, merge request !338. Read it as if you had to maintain it. Correctness
first, style only where it hides something.

- git fetch origin led-405-proration + git log led-405-proration | git diff main...led-405-proration!
- read billing/proration.py! + read tests/test_proration.py | test tests/test_proration.py

Three findings that block, two that do not. Blocking: (1) days are counted with date subtraction in local time, so a
plan change on the night of a clock change is off by a day, against rule 3; (2) the prorated amount is computed as a
float and rounded at the end, against rule 2; (3) credit for the old plan and charge for the new one round separately,
so their sum can differ from the difference by a cent. Not blocking: a name that says weeks and holds days, and a
missing case for upgrades on the first day.

== review
Show me a concrete case for each of the three, with numbers.

- cmd python scripts/proration_cases.py | read billing/proration.py | edit tests/test_proration.py
- fail tests/test_proration.py

(1) Change at 2025-03-30T00:30 in a zone that moves its clock that night: 30 days are counted as 29, the customer pays
$prorcents cents too little. (2) 1999 cents over 31 days, 7 used: 451.387... as float, stored as 451, but a sum of
rounded days gives 7 times 64 = 448. (3) Old plan 1000, new plan 1500, 10 of 31 days left: credit 323, charge 484,
together 161; the difference of 500 prorated is 161.29, so 161 here, but with 14 days the two ways give 225 and 226.
All three are failing tests now.

== review
Would you fix it on their branch, or send it back?

- git log led-405-proration + git blame billing/proration.py | grep prorate src

Send it back with the tests. The author knows the plan rules better than I do, and the fix for (3) needs a product
answer: should the invoice show two lines that add up, or one line with the exact difference? My advice is two lines,
where the second takes the remainder, as we decided for credit notes today.

== review
Agreed, two lines with the remainder on the second. Write the review comment, friendly, and push the failing tests to
a side branch so they can cherry-pick.

- git checkout -b led-405-review-tests + edit tests/test_proration.py | git commit -am "LED-405: cases for review"
- git push -u origin led-405-review-tests

Pushed as $shareview on led-405-review-tests. The comment: thank you, this is easy to follow. Three things I would
like to see before it merges, each with a failing test you can take over: local dates, a float on the way, and two
roundings that do not add up. For the last one the decision is two lines, remainder on the second. The rest is small
and up to you.

== review
Quick look at my own small one too: !339, log format for the scheduler.

- git diff main...led-402-log-format! + read logs.py | read jobs/scheduler.py | test tests/test_logs.py

Good to merge, with one question. The new format logs the whole job payload at INFO, and the statement job has
customer addresses in it. I would log ids only: job, attempt, duration, customer_id. Everything else is clear, and the
timestamps are UTC.

== review
Good catch, ids only. Change it for me and merge those that are green: !341, !342, !343, !344.

- edit logs.py + edit jobs/scheduler.py | test tests/test_logs.py | cmd ci status --merge-requests 341,342,343,344
- cmd ci merge-train add 341 342 343 344 | git pull origin main + test tests! | git log

Rule 4 says nobody pushes to main, so I queued all four in the merge train rather than merging locally; CI merged
!341, !342, !343 and !344 in that order. main is at $shamain, $ntestsend tests pass, revision 0050 is the only
migration head. !339 has the smaller log line and waits for your approval.

== staging
Staging. Version 2.15.0-rc1 from main. Credit notes behind the flag credit_notes_enabled, on for staging, off for
production. Tell me the steps before you run anything.

- read deploy/staging.yaml + read deploy/production.yaml + read Makefile | web docs.example.com/runbooks/deploy
- cmd ledgerd config check --env staging | todo

Steps: tag v2.15.0-rc1 at $shamain; build and push the image; upgrade the database 0046 to 0050 while 2.14.3 still
runs (all four are additive, so that is safe); roll out two pods, wait for health, then the other four; run the smoke
tests; start the backfill; watch errors and p95 for 30 minutes. Step back: roll the image back to 2.14.3, leave the
schema as it is. Nothing ran yet.

== staging
Go, step by step. Stop at the first thing that looks odd.

- git tag v2.15.0-rc1 + cmd make image tag=2.15.0-rc1! | cmd make db-upgrade env=staging
- cmd deploy status --env staging
- cmd deploy rollout ledgerd --env staging --image 2.15.0-rc1 | cmd curl -s https://ledgerd.staging.example.com/health

Stopped after the first two pods. The image (digest sha256:$digest) is up and healthy, the schema is at 0050 after
$upg s, but pod 2 restarted once: it could not find the template credit_note.html. The file is in the repository and
not in the image, because package data lists templates by name. Two pods run 2.15.0-rc1, four still run 2.14.3, nobody
sees an error.

== staging
So fix the package data. Why did no test see it?

- read pyproject.toml + read clients/pdf.py | edit pyproject.toml | cmd python -m build --wheel
- edit tests/test_packaging.py
- test tests/test_packaging.py

Tests run from the checkout, where the file is present. Package data is a pattern now, and a new test builds the wheel
and compares its templates with the folder: it fails on rc1 with "credit_note.html missing" and passes now. This
becomes 2.15.0-rc2, commit $sharctwo.

== staging
Carry on with rc2.

- cmd make image tag=2.15.0-rc2 + git tag v2.15.0-rc2 | cmd deploy rollout ledgerd --env staging --image 2.15.0-rc2
- cmd deploy logs ledgerd --env staging! | cmd ledgerd smoke --env staging

All six pods run 2.15.0-rc2, no restarts in ten minutes, smoke tests $smoke of $smoke. I issued a credit note for a
test invoice: CN1-2025-000001, the webhook arrived after $hookms ms through the outbox, and the PDF renders. Invoice
numbering went on from where it was, without a gap: I compared the series before and after.

== staging
How do latency and errors look against yesterday?

- cmd metrics query http_request_duration --env staging + cmd metrics query http_errors --env staging
- cmd psql -c 'select * from pg_stat_statements'! | read deploy/alerts.yaml

p95 of POST /v1/invoices is $pa ms against $pb ms yesterday, p50 unchanged, error rate 0.02 % against 0.03 %. The
extra milliseconds are the double write from LED-415, as expected, and go away in 2.17. One query is new among the top
ten: the creditable amount per line, 4.1 ms on average, with an index scan. No alert fired.

== staging
One of the alerts has a threshold of 800 ms for p95, which never fires. Make it 300 ms for staging only, and start the
backfill.

- edit deploy/alerts.yaml + cmd deploy alerts check --env staging | cmd ledgerd jobs run backfill --env staging
- cmd tail -n 60 var/log/backfill.log!

The staging alert is at 300 ms, production stays at 800 ms. The backfill is running: 5,000 rows per batch, lag $laglow
s, about 49 minutes to go by the dry run. It stops by itself above 10 s of lag and resumes.

== staging key
Last thing: write the handover for tomorrow. What is done, what is decided and why, what is open, who owns it.

- todo | edit docs/handover.md | git status + git log

Done: LED-398 ($shafix), LED-412 ($shacredit), LED-415 first release ($shamigr), LED-377 ($shaflaky), all in main at
$shamain; staging runs 2.15.0-rc2 at revision 0050. Decided: half-even per line with an explicit mode; credit notes in
tables of their own because of the gapless series; credit_note.issued through the outbox (the synchronous webhook is
revoked); outbox order per invoice only. Open: the NULL amounts (finance), LED-431 drop the column in 2.17, LED-440
cursors on created_at, void from partially_paid (a question for you), !339 and the review of !338. The five rules and
the gapless numbers hold for whoever continues.
"""

FOLLOW_UPS = """
== later
Next on the list is LED-$ticket: $thing handling in $area is too slow for customers with more than $customer rows.
Profile it first.

- grep $noun src + read $module! | cmd pytest --durations=10 | edit $module | test $test | git diff

The time went into one query per $thing: $many queries for a page. I load them in one go now, $many ms became $less
ms. The order of the result is unchanged, and a test counts the queries so that it stays that way.

== later
Support reports that a $thing shows the wrong $word after a retry. The customer id is $customer. See LED-$ticket.

- cmd tail -n 80 var/log/ledgerd.log! + grep $field src | read $module + read $test | edit $module | test $test

The retry ran with a stale copy: $module reads the $thing before it takes the lock. I moved the read behind the lock
and added a test that fails without it. $less customers were affected since release 2.1$few; their ids are in
var/reports/led-$ticket.csv.

== later
Please go through the open warnings in $area and close what is simple. No behaviour changes.

- cmd ruff check src! | read $module | edit $module + edit $test | test $test | git commit -am "Tidy $area"

Closed $less of them, all unused names or shadowed builtins. I left $few that hide a decision about the $word of a
$thing; they are on the todo list with a line each.

== later
What would it take to expose $thing history over the API? Just an estimate, with the risky part named.

- read api/invoices.py + read $module! | web docs.example.com/api/versioning | grep $noun src + todo

About $few days: one endpoint, one query with a keyset cursor, tests and the guide. The risk is the cursor, as in
LED-440: $word is not unique, so it must be paired with the id. No migration if we accept history from release 2.9 on.

== later
CI for LED-$ticket is red on the types job only. Have a look, I cannot see what changed.

- cmd mypy --strict src! | git log + read $module | edit $module | cmd mypy src | test $test

The stubs got stricter about optional values: $module passed a $thing that may be None into a function that needs one.
The check belongs at the border, so I put it there and removed $few casts that had hidden it.
"""
