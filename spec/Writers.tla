------------------------------- MODULE Writers -------------------------------
(***************************************************************************)
(* Several processes fold one session, and only its archive is between     *)
(* them. Its one promise is that a key is written once: whoever finds a    *)
(* step taken looks again and moves on. The newest fold is in force.       *)
(*                                                                         *)
(*   rest ─ looked ─ asking ─ saved ─ rest                                 *)
(*                                                                         *)
(* A list is here the set of positions that stand in it word for word.     *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Writers,
    Keep,           \* messages that a fold leaves
    MaxMessages, MaxCrashes

VARIABLES
    said,           \* how many messages there are
    has,            \* the list of each writer's host
    at,             \* how far each writer's call has come
    view, step,     \* the list it folds, and the step it takes
    transcripts,    \* the archive: a list by each step that was taken,
    folds,          \* and what the fold of that step left
    crashes

vars == <<said, has, at, view, step, transcripts, folds, crashes>>

Max(S)       == CHOOSE x \in S : \A y \in S : y <= x
Steps        == DOMAIN transcripts
Put(f, s, v) == [x \in DOMAIN f \cup {s} |-> IF x = s THEN v ELSE f[x]]
Newer(than)  == (than + 1)..said
NewestOf(l)  == {p \in l : Cardinality({q \in l : q >= p}) <= Keep}

InForce == IF DOMAIN folds = {} THEN 1..said
           ELSE LET fold == folds[Max(DOMAIN folds)] IN fold.left \cup Newer(fold.upto)
Due(l)  == Cardinality(l) > Keep + 1

Init ==
    /\ said = 0 /\ crashes = 0
    /\ transcripts = <<>> /\ folds = <<>>
    /\ has = [w \in Writers |-> {}] /\ view = has
    /\ at = [w \in Writers |-> "rest"]
    /\ step = [w \in Writers |-> 0]

Say ==
    /\ said < MaxMessages
    /\ said' = said + 1
    /\ has' = [w \in Writers |-> has[w] \cup {said'}]
    /\ UNCHANGED <<at, view, step, transcripts, folds, crashes>>

(* Before each fold a writer looks whether somebody else wrote, and reads  *)
(* back anew what is in force.                                             *)
Look(w) ==
    /\ at[w] = "rest" /\ Due(has[w])
    /\ view' = [view EXCEPT ![w] = InForce]
    /\ has' = [has EXCEPT ![w] = view'[w]]
    /\ step' = [step EXCEPT ![w] = Cardinality(Steps) + 1]
    /\ at' = [at EXCEPT ![w] = IF Due(view'[w]) THEN "looked" ELSE "rest"]
    /\ UNCHANGED <<said, transcripts, folds, crashes>>

Write(w) ==
    /\ at[w] = "looked"
    /\ IF step[w] \notin Steps
       THEN /\ transcripts' = Put(transcripts, step[w], [by |-> w, list |-> view[w]])
            /\ at' = [at EXCEPT ![w] = "asking"] /\ UNCHANGED step
       ELSE /\ step' = [step EXCEPT ![w] = Max(Steps) + 1]
            /\ UNCHANGED <<transcripts, at>>
    /\ UNCHANGED <<said, has, view, folds, crashes>>

Save(w) ==
    /\ at[w] = "asking"
    /\ folds' = Put(folds, step[w], [by |-> w, left |-> NewestOf(view[w]), upto |-> Max(view[w])])
    /\ at' = [at EXCEPT ![w] = "saved"]
    /\ UNCHANGED <<said, has, view, step, transcripts, crashes>>

Return(w) ==
    /\ at[w] = "saved"
    /\ has' = [has EXCEPT ![w] = folds[step[w]].left \cup Newer(folds[step[w]].upto)]
    /\ at' = [at EXCEPT ![w] = "rest"]
    /\ UNCHANGED <<said, view, step, transcripts, folds, crashes>>

Crash(w) ==
    /\ at[w] # "rest" /\ crashes < MaxCrashes
    /\ crashes' = crashes + 1
    /\ at' = [at EXCEPT ![w] = "rest"]
    /\ UNCHANGED <<said, has, view, step, transcripts, folds>>

Fold(w) == Look(w) \/ Write(w) \/ Save(w) \/ Return(w)
Next == Say \/ \E w \in Writers : Fold(w) \/ Crash(w)
Spec == Init /\ [][Next]_vars /\ \A w \in Writers : WF_vars(Fold(w))

-----------------------------------------------------------------------------
\* What is written stays: no step has two owners.
OneOwner == [][
    /\ \A s \in Steps : s \in Steps' /\ transcripts'[s] = transcripts[s]
    /\ \A s \in DOMAIN folds : s \in DOMAIN folds' /\ folds'[s] = folds[s]]_vars

\* The transcript of a fold is its own writer's, and was there before it.
OwnTranscript == \A s \in DOMAIN folds :
    s \in Steps /\ transcripts[s].by = folds[s].by /\ folds[s].left \subseteq transcripts[s].list

\* What is missing, in the list in force or in a host's, is in a list that was archived.
NothingMissing ==
    \A p \in 1..said : \A l \in {InForce} \cup {has[w] : w \in Writers} :
        p \in l \/ \E s \in Steps : p \in transcripts[s].list

\* Whoever goes on to fold has read what is in force.
ReadBack == [][\A w \in Writers : at[w] = "rest" /\ at'[w] = "looked" => view'[w] = InForce]_vars

\* Steps count from 1, without gaps.
NoGaps == Steps = 1..Cardinality(Steps)

\* Every fold finishes, whoever else writes.
EveryFoldFinishes == \A w \in Writers : (at[w] # "rest") ~> (at[w] = "rest")
=============================================================================
