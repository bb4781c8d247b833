---------------------------- MODULE Conversation ----------------------------
(***************************************************************************)
(* A list of messages: what belongs together, what a layout folds, and     *)
(* what is left then. Everything here is a function of the list; what      *)
(* happens in time is in Session.                                          *)
(*                                                                         *)
(* A message knows where it stood in the session (`at`), its kind, and     *)
(* whether it is pinned. A summary stands for the positions `of` that went *)
(* into it. Indices are places in a list, positions places in the session. *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Layout,         \* "in_place", "layered" or "rolling"
    KeepTurns,      \* turns or rounds that layered and rolling keep
    KeepPairs,      \* tool blocks that layered keeps
    MessageCost     \* what a message weighs, in units of the largest summary

Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : x <= y

Message(at, kind, pin) == [at |-> at, kind |-> kind, pin |-> pin, of |-> {at}, size |-> MessageCost]
Summary(of, size)      == [at |-> Max(of), kind |-> "summary", pin |-> FALSE, of |-> of, size |-> size]

Indices(list)   == 1..Len(list)
Of(list, kinds) == {i \in Indices(list) : list[i].kind \in kinds}
Summaries(list) == Of(list, {"summary"})
Users(list)     == Of(list, {"user"})
Survivors(list) == {list[i] : i \in Indices(list) \ Summaries(list)}

RECURSIVE Tokens(_)
Tokens(list) == IF list = <<>> THEN 0 ELSE Head(list).size + Tokens(Tail(list))

RECURSIVE Pick(_, _, _)
Pick(list, S, i) ==                                   \* the items of list at S, in their order
    IF i > Len(list) THEN <<>>
    ELSE (IF i \in S THEN <<list[i]>> ELSE <<>>) \o Pick(list, S, i + 1)
Items(list, S) == Pick(list, S, 1)

-----------------------------------------------------------------------------
(* Pairs and blocks. A call of kind "twice" waits for two results.         *)

Wants(m)  == CASE m.kind = "call" -> 1 [] m.kind = "twice" -> 2 [] OTHER -> 0

\* The call of each result: the nearest earlier one that still waits, since ids repeat; 0 when there is none. (L26)
CallOf(list) ==
    LET call[i \in Indices(list)] ==
            LET calls   == {j \in 1..(i - 1) : Wants(list[j]) > 0}
                waiting == {j \in calls : Cardinality({k \in (j + 1)..(i - 1) : call[k] = j}) < Wants(list[j])}
            IN  IF list[i].kind # "result" \/ waiting = {} THEN 0 ELSE Max(waiting)
    IN  call

\* What stays or goes with the message at i: a call and all of its results.
Block(list, i) ==
    LET call == CallOf(list)
        head == IF call[i] = 0 THEN i ELSE call[i]
    IN  {head} \cup {j \in Indices(list) : call[j] = head}

Waits(list, i)  == Wants(list[i]) > 0 /\ Cardinality({j \in Indices(list) : CallOf(list)[j] = i}) < Wants(list[i])
Open(list)      == {i \in Indices(list) : \E j \in Block(list, i) : Waits(list, j)}
Pinned(list)    == {i \in Indices(list) : \E j \in Block(list, i) : list[j].pin}
Tools(list)     == {i \in Indices(list) : Wants(list[Min(Block(list, i))]) > 0}

\* A turn starts at a user's message that does not follow another one.
Starts(list)    == {i \in Users(list) : i = 1 \/ list[i - 1].kind # "user"}
StartOfLast(list, turns) ==
    IF Cardinality(Starts(list)) > turns
    THEN CHOOSE i \in Starts(list) : Cardinality({j \in Starts(list) : j >= i}) = turns
    ELSE 1

-----------------------------------------------------------------------------
(* What folds. A plan is a sequence of sets of indices, in order.          *)

RECURSIVE InOrder(_)
InOrder(S) == IF S = {} THEN <<>>
              ELSE LET first == CHOOSE s \in S : \A t \in S : Min(s) <= Min(t)
                   IN  <<first>> \o InOrder(S \ {first})

Eligible(list, window) ==
    LET free == {i \in Of(list, {"assistant", "call", "twice", "result"}) : i + window <= Len(list)}
                    \ (Open(list) \cup Pinned(list))
    IN  {i \in free : Block(list, i) \subseteq free}

Runs(list, window) ==
    LET e     == Eligible(list, window)
        edges == {p \in e \X e : /\ p[1] < p[2] /\ p[1]..p[2] \subseteq e
                                 /\ p[1] - 1 \notin e /\ p[2] + 1 \notin e}
    IN  {p[1]..p[2] : p \in edges}

\* The size after folding the first n runs, each summary taken at its limit of one unit.
SizeAfter(list, runs, n) ==
    Tokens(list) + n - MessageCost * Cardinality(UNION {runs[i] : i \in 1..n})

\* The earliest runs, only as many as get below the target; 0 asks for all.
InPlace(list, window, target) ==
    LET runs   == InOrder(Runs(list, window))
        enough == {n \in 1..Len(runs) : SizeAfter(list, runs, n) < target}
    IN  IF target = 0 \/ enough = {} THEN runs ELSE SubSeq(runs, 1, Min(enough))

KeptByLayered(list) ==
    LET paired == Tools(list) \ (Open(list) \cup Pinned(list))
        heads  == {i \in paired : i = Min(Block(list, i))}
        recent == {i \in heads : Cardinality({j \in heads : j >= i}) <= KeepPairs}
        newest == IF Users(list) = {} THEN {} ELSE {Max(Users(list))}
    IN  {i \in Indices(list) \ Tools(list) : i >= StartOfLast(list, KeepTurns)}
            \cup UNION {Block(list, i) : i \in recent} \cup newest

KeptByRolling(list) ==
    {i \in Indices(list) : Max(Block(list, i)) >= StartOfLast(list, KeepTurns)}

\* What no rule keeps folds, earlier summaries with it; a summary alone is nothing to fold.
AllBut(list, kept) ==
    LET folded == Indices(list) \ ((kept \cup Open(list) \cup Pinned(list)) \ Summaries(list))
    IN  IF folded \subseteq Summaries(list) THEN <<>> ELSE <<folded>>

Plan(list, window, target) ==
    CASE Layout = "in_place" -> InPlace(list, window, target)
      [] Layout = "layered"  -> AllBut(list, KeptByLayered(list))
      [] Layout = "rolling"  -> AllBut(list, KeptByRolling(list))

Folded(plan) == UNION {plan[n] : n \in 1..Len(plan)}

-----------------------------------------------------------------------------
(* What is left. The body of a fold is the size of its summary; 0 when     *)
(* there is none: then an earlier summary stays as it stands.              *)

Left(list, fold, body) ==
    LET earlier == fold \cap Summaries(list)
    IN  IF body > 0 THEN <<Summary(UNION {list[i].of : i \in fold}, body)>>
        ELSE IF earlier # {} THEN <<list[Min(earlier)]>> ELSE <<>>

RECURSIVE InTheirPlaces(_, _, _, _)
InTheirPlaces(list, plan, bodies, i) ==
    IF i > Len(list) THEN <<>>
    ELSE LET folds == {n \in 1..Len(plan) : i \in plan[n]}
             fold  == Max(folds)
             here  == IF folds = {} THEN <<list[i]>>
                      ELSE IF i = Min(plan[fold]) THEN Left(list, plan[fold], bodies[fold]) ELSE <<>>
         IN  here \o InTheirPlaces(list, plan, bodies, i + 1)

\* Layered puts the pinned first, but for a call that waits: its result will come behind it.
After(list, plan, bodies) ==
    IF Layout = "layered" /\ plan # <<>>
    THEN LET ahead == Pinned(list) \ Open(list)
         IN  Items(list, ahead) \o Left(list, plan[1], bodies[1])
                 \o Items(list, Indices(list) \ (ahead \cup plan[1]))
    ELSE InTheirPlaces(list, plan, bodies, 1)
=============================================================================
