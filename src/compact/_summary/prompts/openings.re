# How answers begin that are not summaries (see rejection.py): one regular expression per line, case ignored, under the
# name that rejection.py knows it by. A line with two braces takes in all lines of the list it names.

[placeholder]
[\[<{(]+(?:\w+\s){0,5}(?:summary|notes?|text|content)(?:\s(?:goes\s)?here)?[\]>})]+\W*$
(?:\w+\s){0,3}?(?:summary|conversation)(?:\s\w+){0,2}?\s(?:unavailable|not available)\W*$
(?:\w+\s){0,3}?conversation(?:\s\w+){0,2}?\stoo long to (?:be )?summari[sz]ed?\W*$
no summary\b.{0,40}$
lorem ipsum\b

[page]
<!doctype html
<html[\s>]
<head>
<body[\s>]
<\?xml\s
<center>\s*<h1>

[wire]
(?:\w*Completion|\w*Message|\w*Response|TextBlock|Choice)\(\w+=
<[\w. ]{1,80} at 0x[0-9a-f]+>
(?:event: \w+\s+)?data: (?:\{|\[DONE\])

[call]
<(?:\w+:)?(?:tool_call|function_calls?|invoke|tool_use)[\s>=]
\[TOOL_CALLS\]
<\|(?:python_tag|tool_call)
functions\.\w+\(
\{\s*"(?:name|type|tool|function)"\s*:\s*"[\w.-]{1,64}"\s*,\s*"(?:arguments|parameters|input|function|args)"\s*:

[fault]
[\w.]{0,60}(?:error|exception|timeout)\b
(?:an? |the )?(?:unexpected |internal |server |unknown |unhandled ){0,3}(?:error|exception)\b
fatal\b|oops\b|something went wrong
traceback \(most
HTTP\b|[45]\d\d [A-Z]
bad gateway|gateway time|service (?:is )?(?:temporarily )?unavailable
too many requests|rate limit|you exceeded|overloaded|the model is overloaded
upstream connect|connection (?:refused|reset|aborted|error)
CUDA\b|out of memory
(?:the )?(?:request|connection|call|generation|completion|summari[sz]ation)\b.{0,40}?(?:failed|timed? ?out)
(?:failed|unable|could not|couldn't) (?:to )?(?:generate|summari|connect|reach|fetch|parse|complete|get a response)
(?:the )?model [`'"]
(?:this model's )?maximum context|context length|prompt is too long

# What a service speaks of when it fails; searched for anywhere in an answer.
[service]
rate.?limit|quota|too (?:many|long)|overloaded|try again|retry
time.?out|timed out|unavailable|connect|server|gateway|request|respon|upstream|reset
(?:status|error) code|\b[45]\d\d\b|traceback|out of memory|not have access
api.?key|authenticat|unauthori
context.?(?:length|window)|token|\bmodel\b|completion|generat|summar

[refusal]
{{sorry}}.{0,80}?{{unable}}
(?:(?:unfortunately|regrettably),? )?(?:i|we) ?{{cannot}} (?:help|assist)(?: you)?(?: with\b| in\b|[.,!]|$)
(?:(?:unfortunately|regrettably),? )?(?:i|we) ?{{cannot}} (?:\w+ (?:or|and|to) )?{{deed}}\b.{0,40}?\b{{matter}}
as an? (?:ai|artificial|large language|language)\b.{0,120}?\b(?:can't|cannot|unable|not able|don't|do not)\b
(?:this|the|your) (?:request|prompt|content|response)\b.{0,60}?{{barred}}.{0,80}?(?:polic|guideline|filter)
ich kann (?:dabei|ihnen|dir)\b.{0,30}nicht
je ne (?:peux|puis) pas (?:vous |t')?aider
no puedo ayudar
não posso ajudar
non posso aiutar
я не могу (?:вам |тебе )?помочь
我?(?:无法|無法|不能)(?:帮|幫|协助|協助|提供|满足|滿足|完成|总结|總結)
お手伝い.{0,8}できません
도와.{0,4}수 없

[cannot]
can(?:no|')?t|can not|won't|will not
(?:'m|am|are) (?:not able|unable) to
must decline to

[deed]
summari[sz]e|provide|comply|fulfill?|complete|continue|engage|discuss|create|generate|produce|process|write

[matter]
requests?|conversation|content|material|text|transcript|summary|topic|discussion|prompt|instructions?|that\.

[barred]
violat|filtered|blocked|flagged|against

[sorry]
(?:i'm |i am |we're |we are )?(?:very |so |really )?(?:sorry|afraid)
i apologi[sz]e|(?:my )?apologies
(?:es )?tut mir .{0,5}leid
(?:je suis |nous sommes )?(?:vraiment )?désolée?s?
lo (?:siento|lamento)
mi (?:dispiace|scuso)
desculpe|sinto muito|lamento
het spijt me
jag är ledsen|beklager|beklagar
przykro mi|przepraszam
omlouvám se
извините|простите|мне (?:очень )?жаль|вибачте
üzgünüm
xin lỗi
(?:mohon )?maaf
.{0,3}(?:抱歉|对不起|對不起)
.{0,3}(?:申し訳|すみません|恐れ入り)
죄송|미안
آسف|عذر|أعتذر
क्षमा|माफ़

[unable]
\b(?:i|we) ?{{cannot}}
\bkann (?:ich|ihnen|dir|das)\b|\bich\b.{0,20}\bkann\b
\bne (?:peux|puis|pouvons)\b
\bno (?:puedo|podemos)\b
\bnon posso\b
\bnão (?:posso|consigo)\b
\bik kan\b|\bkan ik\b
\bkan (?:jag|jeg)\b|\b(?:jag|jeg) kan (?:inte|ikke)\b
\bnie mogę\b
\bne(?:mohu|můžu)\b
\bне (?:могу|можу|можем)\b
[ae]m[ae]m\b|[ae]mıyorum\b
\bkhông thể\b
\btidak (?:bisa|dapat)\b
不能|无法|無法
できません|できかね|いたしかね
수 없|어렵
لا (?:أستطيع|يمكن)
नहीं

[chat]
(?:sure|certainly|of course|absolutely|great|great question|sounds good|alright)(?: thing)?[,!.](?=\s|$)
(?:okay|ok|got it|understood|no problem|happy to help)[,!.](?=\s|$)
(?:thanks|thank you|you're welcome|hello|hi|hey)(?: there)?[,!.](?=\s|$)

[input]
(?:please|could you|can you|kindly)\s(?:\w+\s){0,3}?(?:provide|share|paste|send|upload)\b.{0,80}?{{given}}
it (?:looks|seems|appears)\b.{0,160}?{{given}}
(?:sure|hello|hi|of course|certainly|i'(?:m|d) (?:ready|happy|glad|love))\b.{0,160}?{{given}}
(?:i (?:don't|do not|can't|cannot) (?:see|find|have)|there (?:is|are|was|were) (?:no|nothing))\b.{0,160}?{{given}}
no (?:conversation|messages?|text)\b.{0,160}?{{given}}
nothing to summari[sz]e

[given]
\b(?:conversation|transcript|text|messages?|content|notes|document|summari[sz]e|provided)\b

[aloud]
<?think(?:ing)?>
(?:okay|ok|alright|so|hmm|first|well|let's see|let me think)\b.{0,60}?{{intends}}.{0,80}?{{notes}}

[intends]
\b(?:i need to|i should|i have to|let me|i'll|the user wants me to|we need to|my task)\b

[notes]
\b(?:summar|notes|fold|conversation|messages)
