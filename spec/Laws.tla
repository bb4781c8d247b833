-------------------------------- MODULE Laws --------------------------------
(***************************************************************************)
(* The laws of a session, by the ids of the specification. Everything      *)
(* below the line is a law: a predicate of each state, of each step        *)
(* ([][...]) or of a whole run (~>). What a model of shapes cannot say is  *)
(* proved of the code, and the comment names it.                           *)
(*                                                                         *)
(* A plan is judged when it was selected, a fold when it was saved: until  *)
(* then `list` is what it folds, and Out is what it leaves. The host's     *)
(* list changes only where a call ends, so it is judged at rest.           *)
(***************************************************************************)
EXTENDS Session

Selected    == at = "selected"
Saved       == at = "saved"
Resting     == at = "rest"
Deciding    == at' = "judged" /\ at # "judged"
Out         == Newest.left
InPlaces    == Layout = "in_place"
Folds       == 1..Len(plan)
With        == {n \in Folds : bodies[n] > 0}                          \* the folds that have a summary

Range(l)    == {l[i] : i \in Indices(l)}
First(l, n) == SubSeq(l, 1, n)
Last(l, n)  == IF n >= Len(l) THEN l ELSE SubSeq(l, Len(l) - n + 1, Len(l))
Stands(l)   == UNION {m.of : m \in Range(l)}                          \* the positions that a list stands for
Into(l, S)  == UNION {l[i].of : i \in S}
Fresh(l, S) == {l[i].at : i \in S \ Summaries(l)}
Ordered(l, S) == \A i, j \in S : i < j => l[i].at < l[j].at
Within(w)   == {i \in Indices(list) : i + w > Len(list)}              \* the indices inside a window
Begins(l)   == Min({l[i].at : i \in Indices(l) \ Pinned(l)})
Archived(m) == \E n \in 1..Len(archive) : m \in Range(archive[n].list)

\* A list that a provider takes: no result without its call, and only the last block may wait for one.
Valid(l) ==
    /\ \A i \in Of(l, {"result"}) : CallOf(l)[i] > 0
    /\ \A i \in Indices(l) : Waits(l, i) => \A j \in (i + 1)..Len(l) : l[j].kind = "result"

\* What was said since the last fold, as far as the list shows it, and the thresholds said once more.
New == {i \in Indices(list) \ Summaries(list) : list[i].at > Since}
Reached ==
    \/ MessageThreshold \in 1..Cardinality(New)
    \/ TurnThreshold \in 1..Cardinality(New \cap Starts(list))
    \/ TokenThreshold \in 1..Tokens(list)
    \/ Layout = "rolling" /\ Cardinality(Starts(list)) > KeepTurns
Foldable == Plan(list, window, Goal) # <<>>

RECURSIVE Sum(_)
Sum(numbers) == IF numbers = <<>> THEN 0 ELSE Head(numbers) + Sum(Tail(numbers))

Moves(from, to, legal) == <<from, to>> \in legal

(* The fairness of Session with ENABLED said by hand, over which TLC takes *)
(* minutes: there is always something to do in a fold, and something to    *)
(* judge as Pending says. Planted faults are run with Spec itself.         *)
Pending == Resting /\ (changed \/ missed \/ state # "not_needed" \/ Due(Seen))
Lawful  == /\ Init /\ [][Next]_vars
           /\ <>[]Pending => []<><<Judge>>_vars
           /\ <>[]~Resting => []<><<Folding>>_vars

-----------------------------------------------------------------------------
(* Triggers.                                                               *)

\* The message counter is what the list holds since the last fold; turns are never more than were said.
L01_Counters ==
    /\ Len(said) - Since = Cardinality(New)
    /\ NewTurns(list) <= Cardinality({i \in Starts(said) : i > Since})

\* Whoever asks is told "needed" exactly when a threshold is reached, at "at least".
L01_Needed == (Judged(list) = "needed") = Reached

\* What is needed is done, unless there is nothing to fold, or no summary of it can be used.
L01_NeededLeadsToDone == (Reached /\ Foldable) ~> (Saved \/ ~Reached \/ ~Foldable \/ refused # {})

\* The state goes round; only a fold that was asked for, or a new process, goes back to "not needed" at once.
L02_Moves == [][
    \/ Moves(state, state', {<<"not_needed", "needed">>, <<"needed", "in_progress">>, <<"needed", "not_needed">>,
                             <<"in_progress", "completed">>, <<"in_progress", "needed">>,
                             <<"completed", "not_needed">>, <<"completed", "needed">>})
    \/ state' = "not_needed" /\ (forced \/ crashes' > crashes)]_state

\* A fold that completed left nothing due.
L02_CompletedIsBelow == [][state' = "completed" /\ state # "completed" => ~Reached']_vars

\* Whoever folds was in need of it.
L02_NeededFirst == at = "judged" => state = "needed"

\* 0 switches a threshold off: without any, nothing is ever due.
L31_ZeroIsOff ==
    MessageThreshold = 0 /\ TurnThreshold = 0 /\ TokenThreshold = 0 /\ Layout # "rolling" => ~Due(list)

\* The counters of messages and turns start again at each fold.
L31_CountersStartAgain == Saved => Len(said) = Since /\ NewTurns(list) = 0

\* A setting that was changed counts at the next decision. That 60,000 is the default, the code proves.
L09_CountsAtTheNextDecision == [][Deciding => window' = wanted']_vars

\* A fold runs only when it is due or asked for.
L27_OnlyWhenNeeded == Selected => forced \/ Reached

(* What is selected.                                                       *)

\* The phases follow each other; a fold may be given up from any of them.
L04_Phases == [][
    \/ phase' = "idle"
    \/ Moves(phase, phase', {<<"idle", "selecting">>, <<"selecting", "compacting">>,
                             <<"compacting", "replacing">>})]_phase

\* Only assistant messages and tool results fold in place.
L05_OnlyAssistantAndTools ==
    InPlaces /\ Selected => Folded(plan) \subseteq Of(list, {"assistant", "call", "twice", "result"})

\* A run has no holes, is as long as it can be, and none could start before the first.
L06_ContiguousFromTheEarliest ==
    InPlaces /\ Selected =>
        LET e == Eligible(list, window)
        IN  /\ \A n \in Folds : plan[n] = Min(plan[n])..Max(plan[n]) /\ Min(plan[n]) - 1 \notin e
            /\ \A i \in e : i + 1 \in e => i >= Min(plan[1])

\* Nothing inside the window in force is selected. That 6 is the default, the code proves.
L07_NothingInTheWindow == InPlaces /\ Selected => Folded(plan) \cap Within(window) = {}

\* A fold that holds a call or a result holds the other.
L08_WholeBlocks == Selected => \A n \in Folds : \A i \in plan[n] : Block(list, i) \subseteq plan[n]

\* No user's message is ever marked.
L11_NoUserMarked == InPlaces => Folded(plan) \cap Users(list) = {}

\* A run is two messages or more.
L18_TwoOrMore == InPlaces => \A n \in Folds : Cardinality(plan[n]) >= 2

\* What folds was not folded before: eligible is what lies outside the window and is no summary.
L23_FoldedOnce ==
    InPlaces /\ Selected => \A n \in Done : Into(archive[n].list, Folded(archive[n].folds)) \cap Positions = {}

\* Earlier runs come first.
L25_EarliestFirst == InPlaces => \A m, n \in Folds : m < n => Max(plan[m]) < Min(plan[n])

\* A fold that has no target leaves no run that could fold.
L25_NothingEligibleIsLeft == InPlaces /\ Saved /\ Target = 0 => Runs(Out, window) = {}

\* A plan does not outlive its call: the next one is made with the window of that time.
L25_PlansAreDropped == Resting => plan = <<>>

(* What a fold leaves.                                                     *)

\* Only a list longer than the window folds, and the window comes out as it was.
L03_WindowWhole == InPlaces /\ Saved => Len(list) > window /\ Last(Out, window) = Last(list, window)

\* The size changes by what went and what came, to the token.
L04_Tokens ==
    Saved => LET pruned == {n \in Folds \ With : plan[n] \cap Summaries(list) # {}}
                 spared == {Min(plan[n] \cap Summaries(list)) : n \in pruned}
             IN  Tokens(Out) + Tokens(Items(list, Folded(plan) \ spared)) = Tokens(list) + Sum(bodies)

\* What survives is what was said, kind and all. That it is the same object, the code proves.
L10_AsItWasSaid == Saved => \A m \in Survivors(Out) : m = said[m.at]

\* A run becomes one summary, and it stands where the run stood.
L12_OneSummaryInItsPlace ==
    Saved /\ Layout # "layered" => \A n \in With :
        LET of   == Into(list, plan[n])
            here == {j \in Indices(Out) : Out[j].of = of}
        IN  /\ Cardinality(here) = 1
            /\ \A j \in here : Out[j].kind = "summary" /\ \A k \in Indices(Out) \ {j} : (k < j) = (Out[k].at < Min(of))

\* Survivors keep their order; layered puts the pinned ones first, but for a call that still waits.
L13_OrderOfSurvivors ==
    Saved => LET kept  == Indices(Out) \ Summaries(Out)
                 ahead == IF Layout = "layered" THEN Pinned(Out) \ Open(Out) ELSE {}
             IN  /\ Ordered(Out, ahead) /\ Ordered(Out, kept \ ahead)
                 /\ \A i \in ahead, j \in Indices(Out) \ ahead : i < j

\* A summary says something and is smaller than what it replaces; one that is missing has failed.
L14_SmallerThanWhatItReplaces ==
    Saved => \A n \in Folds : IF bodies[n] = 0 THEN broken # "no" ELSE bodies[n] < Tokens(Items(list, plan[n]))

\* A summary stands for all that went into it and for nothing else. What its words keep, the fidelity report measures.
L15_StandsForWhatItReplaced ==
    Resting => /\ \A i, j \in Indices(host) : i # j => host[i].of \cap host[j].of = {}
               /\ Stands(host) \subseteq 1..Len(said) /\ (failures = 0 => Stands(host) = 1..Len(said))

\* Every summary that was accepted is within its limit. That each request carries one, the code proves.
L16_WithinItsLimit == \A i \in Summaries(list) : list[i].size \in 1..1

\* Each run with a summary makes the list shorter by all but one; what stood before and after is the same.
L19_Length ==
    InPlaces /\ Saved =>
        LET first == Min(Folded(plan)) - 1
            last  == Len(list) - Max(Folded(plan))
        IN  /\ Len(Out) = Len(list) - Cardinality(Folded(plan)) + Cardinality(With)
            /\ First(Out, first) = First(list, first) /\ Last(Out, last) = Last(list, last)

\* Every user's message is still there.
L20_UsersStay == InPlaces /\ Resting => \A i \in Users(said) : said[i] \in Range(host)

\* No call is split from its result at either edge: what waits after a fold waited before it.
L21_NoPairSplit ==
    Saved => /\ \A i \in Of(Out, {"result"}) : CallOf(Out)[i] > 0
             /\ {Out[i] : i \in Open(Out)} = {list[i] : i \in Open(list)}

\* Each result belongs to the call it was said for. That ids may repeat, the code proves: here one call waits at a time.
L26_PairsAsSaid ==
    Saved => \A i \in Of(Out, {"result"}) :
        LET calls == CallOf(Out) IN calls[i] > 0 /\ Out[calls[i]].at = CallOf(said)[Out[i].at]

\* At least as many messages as the window holds survive a fold.
L29_EnoughSurvive ==
    InPlaces /\ Saved => Cardinality(Range(Out) \cap Range(list)) >= (IF window < Len(list) THEN window ELSE Len(list))

(* The window in time.                                                     *)

\* Whatever was said and folded: the newest messages, as many as the smallest window holds, are in the host's list.
L22_NewestStay ==
    InPlaces /\ Resting =>
        \A i \in Indices(said) : i + Min(Changes \cup {Window}) > Len(said) => said[i] \in Range(host)

\* The window does not change under a fold.
L24_WindowHolds == [][~Resting /\ at' # "rest" => window' = window]_vars

\* A fold always finishes.
L24_FoldFinishes == (state = "in_progress") ~> (state # "in_progress")

\* Whatever the window is changed to meanwhile, the host gets back the one in force whole.
L32_HostKeepsTheWindow ==
    [][InPlaces /\ Saved /\ at' = "rest" /\ crashes' = crashes => Last(host', window) = Last(list, window)]_vars

\* A change raises a flag, and only a decision or a new process lowers it. Tags and prompts are the code's.
L30_Flag == [][
    /\ wanted' # wanted => changed'
    /\ changed /\ ~changed' => Resting \/ crashes' > crashes
    /\ Deciding => ~changed']_vars

\* Every change is acknowledged.
L30_Acknowledged == changed ~> ~changed

(* The summarizer.                                                         *)

\* Retries are bounded.
L17_Retries == tries.again <= MaxRetries /\ tries.halved <= 2

\* A fallback comes only after what its error allows.
L17_FallbackAfterRetries == [][
    failures' > failures /\ Len(bodies') > Len(bodies) =>
        CASE broken' = "unusable" -> tries.halved = 2
          [] broken' = "refused"  -> tries.brief
          [] broken' = "late"     -> tries.again = MaxRetries
          [] OTHER                -> broken' = "dead"]_vars

\* A fold that fell back still completes.
L17_FallbackCompletes == (broken # "no") ~> (broken = "no")

\* The summarizer is at work exactly while a fold is compacting, and nothing above its limit comes of it.
L33_AtWorkWhileCompacting ==
    /\ (summarizer = "in_progress") = (phase = "compacting")
    /\ \A n \in 1..Len(bodies) : bodies[n] <= 1

(* The archive and the process.                                            *)

\* Folds never go back: what folds is later than all that folded before. A layered fold takes the earlier summary in and
\* starts where that started; without one it starts where its list does, the pinned left out.
L28_NeverBackwards ==
    Saved => IF Layout = "layered"
             THEN /\ Summaries(list) \subseteq Folded(plan)
                  /\ Summaries(list) = {} => \A n \in Done : Begins(archive[n].list) <= Begins(list)
             ELSE \A n \in Done \ {Max(Done)} :
                    \A p \in Fresh(archive[n].list, Folded(archive[n].folds)), q \in Fresh(list, Folded(plan)) : p < q

\* Every fold is recorded as it was, and no record changes.
L28_Recorded == [][
    /\ Len(archive') >= Len(archive) /\ \A n \in Done : archive'[n] = archive[n]
    /\ Saved => Newest.list = list /\ Newest.folds = plan]_vars

\* Every message ever said is in the host's list or in one that was archived.
NothingLost == Resting => \A i \in Indices(said) : said[i] \in Range(host) \/ Archived(said[i])

\* Nobody is asked, and nothing leaves, before the list is on disk.
ArchivedFirst ==
    at \in {"asking", "replacing", "saved"} =>
        archive # <<>> /\ archive[Len(archive)].list = list /\ archive[Len(archive)].upto = Len(said)

\* What is pinned is never missing, nor is what belongs to it.
PinsStay == Resting => \A i \in Pinned(said) : said[i] \in Range(host)

\* The host's list is one that a provider takes, whatever happened.
HostValid == Resting => Valid(host)

\* A process that dies takes nothing along.
CrashLosesNothing == [][crashes' > crashes => UNCHANGED <<said, host, archive>>]_vars

\* The next process has the newest fold and all that was said since.
CaughtUp == [][
    Resting /\ missed /\ (Deciding \/ ~missed') =>
        /\ Range(Newest.left) \subseteq Range(list')
        /\ \A i \in Indices(said) : i > Since => said[i] \in Range(list')]_vars

\* A fold that was archived and not given back is found.
FoundAgain == missed ~> ~missed
=============================================================================
