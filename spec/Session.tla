------------------------------- MODULE Session -------------------------------
(***************************************************************************)
(* One session in time: a host that speaks, a call before each model call, *)
(* the fold it may lead to, a summarizer and a store that may fail, and a  *)
(* process that may die at any moment. The laws about it are in Laws.      *)
(*                                                                         *)
(*   rest ─ judged ─ selected ─ asking ─ replacing ─ saved ─ rest          *)
(*                                                                         *)
(* `at` says how far the call under way has come. A step is what can be    *)
(* seen from outside: a message, a decision, a write to the archive, an    *)
(* answer of the summarizer. The engine is driven through each of them.    *)
(***************************************************************************)
EXTENDS Conversation

CONSTANTS
    Sayable,            \* what the host may say
    Window,             \* the retention window of in_place
    MessageThreshold,   \* since the last fold; 0 is off, for each threshold (L31)
    TurnThreshold,      \* since the last fold
    TokenThreshold,     \* of the whole list
    Target,             \* where a fold that tokens made due may stop
    Changes,            \* windows that the host may change to
    Manual,             \* whether the host may ask for a fold that is not due
    Errors,             \* how a summarizer may fail
    MaxRetries,
    OnFailure,          \* "prune", "extract" or "raise"
    MaxMessages, MaxFailures, MaxCrashes

VARIABLES
    said,       \* every message of the session, in order
    host,       \* the list that the host holds
    list,       \* the list that would go out
    window,     \* the window in force
    wanted,     \* the window that was asked for
    changed,    \* whether that was not acknowledged yet
    state, phase, summarizer,   \* the three states that a session shows
    at,         \* how far the call under way has come
    forced,     \* whether it was asked for, not due
    plan,       \* the folds it carries out
    bodies,     \* the summaries so far
    tries,      \* what was tried for the summary under way
    broken,     \* the last error of this fold that nothing helped against
    archive,    \* what is on disk: a list before each fold, and what the fold did
    missed,     \* whether the archive knows a fold that the host has not seen
    refused,    \* positions whose summaries could not be used: not asked for again
    failures, crashes

settings == <<window, wanted, changed>>
shown    == <<state, phase, summarizer>>
call     == <<at, forced, plan, bodies, tries, broken>>
vars     == <<said, host, list, settings, shown, call, archive, missed, refused, failures, crashes>>

Untried   == [again |-> 0, halved |-> 0, brief |-> FALSE]
Positions == UNION {list[i].of : i \in Folded(plan)}

Done      == {n \in 1..Len(archive) : archive[n].done}
Newest    == archive[Max(Done)]
Since     == IF Done = {} THEN 0 ELSE Newest.upto      \* what was said up to the last fold

-----------------------------------------------------------------------------
(* Whether a fold is due. Every threshold fires at "at least". (L01, L31)  *)

NewTurns(l) == Cardinality({i \in Starts(l) : l[i].at > Since})
Due(l) ==
    \/ MessageThreshold > 0 /\ Len(said) - Since >= MessageThreshold
    \/ TurnThreshold > 0    /\ NewTurns(l) >= TurnThreshold
    \/ TokenThreshold > 0   /\ Tokens(l) >= TokenThreshold
    \/ Layout = "rolling"   /\ Cardinality(Starts(l)) > KeepTurns
Judged(l) == IF Due(l) THEN "needed" ELSE "not_needed"
Goal    == IF ~forced /\ TokenThreshold > 0 /\ Tokens(list) >= TokenThreshold THEN Target ELSE 0

-----------------------------------------------------------------------------
Init ==
    /\ said = <<>> /\ host = <<>> /\ list = <<>>
    /\ window = Window /\ wanted = Window /\ changed = FALSE
    /\ state = "not_needed" /\ phase = "idle" /\ summarizer = "idle"
    /\ at = "rest" /\ forced = FALSE /\ plan = <<>> /\ bodies = <<>> /\ tries = Untried /\ broken = "no"
    /\ archive = <<>> /\ missed = FALSE /\ refused = {}
    /\ failures = 0 /\ crashes = 0

(* The host speaks between calls. While a call of a tool waits, only its   *)
(* results come: providers refuse anything else.                           *)
Heard(what) ==
    CASE what = "pinned"      -> Message(Len(said) + 1, "assistant", TRUE)
      [] what = "pinned call" -> Message(Len(said) + 1, "call", TRUE)
      [] OTHER                -> Message(Len(said) + 1, what, FALSE)

Say(what) ==
    /\ at = "rest" /\ Len(said) < MaxMessages
    /\ (what = "result") = (Open(host) # {})
    /\ said' = Append(said, Heard(what))
    /\ host' = Append(host, Heard(what))
    /\ list' = host'
    /\ UNCHANGED <<settings, shown, call, archive, missed, refused, failures, crashes>>

(* The window is changed. Nothing changes under a fold. (L24, L30)         *)
Change(to) ==
    /\ wanted # to
    /\ wanted' = to /\ changed' = TRUE
    /\ window' = IF at = "rest" THEN to ELSE window
    /\ UNCHANGED <<said, host, list, shown, call, archive, missed, refused, failures, crashes>>

(* How a call ends: all is at rest again, and the host has the list.       *)
AtRest ==
    /\ at' = "rest" /\ forced' = FALSE /\ plan' = <<>> /\ bodies' = <<>> /\ tries' = Untried /\ broken' = "no"
    /\ phase' = "idle" /\ summarizer' = "idle"
    /\ window' = wanted
GivenBack == AtRest /\ host' = list /\ missed' = FALSE /\ UNCHANGED list
Raised    == AtRest /\ list' = host /\ UNCHANGED <<host, missed>>
Still     == state' = Judged(list) /\ (IF OnFailure = "raise" THEN Raised ELSE GivenBack)

(* Before each model call. A process that died after its fold was archived *)
(* told nobody: the next one finds the fold, and puts it in its place.     *)
Seen == IF missed THEN Newest.left \o Items(host, {i \in Indices(host) : host[i].at > Newest.upto}) ELSE host

Judge ==
    /\ at = "rest"
    /\ state' = Judged(Seen) /\ changed' = FALSE /\ list' = Seen
    /\ IF Due(Seen)
       THEN /\ at' = "judged"
            /\ UNCHANGED <<host, window, phase, summarizer, forced, plan, bodies, tries, broken, missed>>
       ELSE AtRest /\ host' = Seen /\ missed' = FALSE
    /\ UNCHANGED <<said, wanted, archive, refused, failures, crashes>>

Demand ==
    /\ Manual /\ at = "rest"
    /\ state' = "needed" /\ changed' = FALSE /\ list' = Seen /\ at' = "judged" /\ forced' = TRUE
    /\ UNCHANGED <<said, host, window, wanted, phase, summarizer, plan, bodies, tries, broken>>
    /\ UNCHANGED <<archive, missed, refused, failures, crashes>>

-----------------------------------------------------------------------------
(* The fold.                                                               *)

Select ==
    /\ at = "judged"
    /\ LET chosen    == Plan(list, window, Goal)
           positions == UNION {list[i].of : i \in Folded(chosen)}
       IN  IF chosen = <<>> \/ (positions = refused /\ ~forced)
           THEN /\ state' = Judged(list)
                /\ (IF chosen # <<>> /\ OnFailure = "raise" THEN Raised ELSE GivenBack)
                /\ UNCHANGED <<wanted, changed>>
           ELSE /\ plan' = chosen
                /\ state' = "in_progress" /\ phase' = "selecting" /\ at' = "selected"
                /\ UNCHANGED <<host, list, settings, summarizer, forced, bodies, tries, broken, missed>>
    /\ UNCHANGED <<said, archive, refused, failures, crashes>>

(* Archive first, then prune: no summarizer is asked before.               *)
Archive ==
    /\ at = "selected"
    /\ archive' = Append(archive, [list |-> list, upto |-> Len(said), done |-> FALSE, folds |-> <<>>, left |-> <<>>])
    /\ at' = "asking" /\ phase' = "compacting" /\ summarizer' = "in_progress"
    /\ UNCHANGED <<said, host, list, settings, state, forced, plan, bodies, tries, broken>>
    /\ UNCHANGED <<missed, refused, failures, crashes>>

StoreFails ==
    /\ at \in {"selected", "replacing"} /\ failures < MaxFailures
    /\ failures' = failures + 1
    /\ Still
    /\ UNCHANGED <<said, wanted, changed, archive, refused, crashes>>

(* A body for the fold under way, or for all that are left.                *)
Settled(more, why) ==
    LET all == bodies \o more
    IN  IF Len(all) < Len(plan)
        THEN /\ bodies' = all /\ tries' = Untried /\ broken' = why
             /\ UNCHANGED <<host, list, settings, shown, at, forced, plan, missed, refused>>
        ELSE IF why # "no" /\ OnFailure = "raise"
        THEN /\ state' = Judged(list) /\ Raised
             /\ refused' = IF why = "unusable" THEN Positions ELSE {}
             /\ UNCHANGED <<wanted, changed>>
        ELSE /\ bodies' = all /\ tries' = Untried /\ broken' = why
             /\ at' = "replacing" /\ phase' = "replacing" /\ summarizer' = "idle"
             /\ UNCHANGED <<host, list, settings, state, forced, plan, missed, refused>>

(* An answer is usable when it says something, in one unit at most.        *)
Usable(size) == size > 0 /\ size <= 1

Answer(size) ==
    /\ at = "asking" /\ Usable(size)
    /\ Settled(<<size>>, broken)
    /\ UNCHANGED <<said, archive, failures, crashes>>

Again(error) ==
    CASE error = "unusable" -> tries.halved < 2
      [] error = "refused"  -> ~tries.brief
      [] error = "late"     -> tries.again < MaxRetries
      [] OTHER              -> FALSE

Tried(error) ==
    CASE error = "unusable" -> [tries EXCEPT !.halved = @ + 1]
      [] error = "refused"  -> [tries EXCEPT !.brief = TRUE]
      [] OTHER              -> [tries EXCEPT !.again = @ + 1]

Fail(error) ==
    /\ at = "asking" /\ failures < MaxFailures
    /\ failures' = failures + 1
    /\ IF Again(error)
       THEN /\ tries' = Tried(error)
            /\ UNCHANGED <<host, list, settings, shown, at, forced, plan, bodies, broken, missed, refused>>
       ELSE \* When the first answer cannot be used, nobody pays for the others.
            LET body == IF OnFailure = "extract" THEN 1 ELSE 0
                rest == IF bodies = <<>> /\ error = "unusable" THEN Len(plan) ELSE 1
            IN  Settled([n \in 1..rest |-> body], error)
    /\ UNCHANGED <<said, archive, crashes>>

Save ==
    /\ at = "replacing"
    /\ archive' = [archive EXCEPT ![Len(archive)] =
                      [@ EXCEPT !.done = TRUE, !.folds = plan, !.left = After(list, plan, bodies)]]
    /\ at' = "saved"
    /\ UNCHANGED <<said, host, list, settings, shown, forced, plan, bodies, tries, broken>>
    /\ UNCHANGED <<missed, refused, failures, crashes>>

Return ==
    /\ at = "saved"
    /\ list' = Newest.left /\ host' = list' /\ missed' = FALSE /\ refused' = {}
    /\ state' = IF TokenThreshold > 0 /\ Tokens(list') >= TokenThreshold THEN "needed" ELSE "completed"
    /\ AtRest
    /\ UNCHANGED <<said, wanted, changed, archive, failures, crashes>>

(* The process dies: what it knew is gone, the archive and the host's list *)
(* are not.                                                                *)
Crash ==
    /\ crashes < MaxCrashes
    /\ crashes' = crashes + 1
    /\ AtRest /\ list' = host /\ state' = "not_needed" /\ refused' = {} /\ changed' = FALSE
    /\ missed' = (missed \/ at = "saved")
    /\ UNCHANGED <<said, host, wanted, archive, failures>>

-----------------------------------------------------------------------------
Folding == Select \/ Archive \/ Answer(1) \/ Save \/ Return
Next ==
    \/ \E what \in Sayable : Say(what)
    \/ \E to \in Changes : Change(to)
    \/ Judge \/ Demand
    \/ Select \/ Archive \/ StoreFails
    \/ \E size \in 0..2 : Answer(size)
    \/ \E error \in Errors : Fail(error)
    \/ Save \/ Return \/ Crash

(* The host calls before each model call, and whoever works on a fold goes *)
(* on with it.                                                             *)
Fairness == WF_vars(Judge) /\ WF_vars(Folding)
Spec == Init /\ [][Next]_vars /\ Fairness
=============================================================================
