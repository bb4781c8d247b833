# ruff: noqa: E501 - a template is one line
"""Templates held back: whoever builds or tunes the engine of redaction does not read this file.

Owns: the part "held" of the corpus: vendors, carriers, key names and syntaxes that the part "dev" does not have.
Must never: be looked at to add a pattern. It says how well the engine does on what it was not built for.

The language of the templates is that of secret_corpus.py.
"""

from __future__ import annotations

from secret_corpus import Part

VENDORS = """
openai-admin           sk-admin-‹b58›T3BlbkFJ‹b58›                    OPENAI_ADMIN_KEY
openrouter             sk-or-v1-‹h64›                                 OPENROUTER_API_KEY
anthropic-oauth        sk-ant-oat01-‹b93›AA                           CLAUDE_CODE_OAUTH_TOKEN
github-user            ghu_‹w36›                                      GITHUB_USER_TOKEN
github-refresh         ghr_‹w36›                                      GITHUB_REFRESH_TOKEN
gitlab-job             glcbt-‹w2›_‹b20›                               CI_JOB_TOKEN
gitlab-feed            glft-‹b20›                                     GITLAB_FEED_TOKEN
gitlab-agent           glagent-‹b50›                                  GITLAB_AGENT_TOKEN
gitlab-oauth-app       gloas-‹b64›                                    GITLAB_APP_SECRET
gitlab-dotted          glpat-‹b27-40›.01.‹l9›                         GITLAB_TOKEN
aws-bearer             ABIA‹r16›                                      AWS_BEARER_KEY
slack-config           xoxe.xoxp-1-‹u163›                             SLACK_CONFIG_TOKEN
slack-refresh          xoxe-1-‹u146›                                  SLACK_REFRESH_TOKEN
slack-legacy           xoxs-‹d10›-‹d10›-‹d10›-‹h32›                   SLACK_LEGACY_TOKEN
slack-workflow         https://hooks.slack.com/workflows/T‹u10›/A‹u10›/‹d17›/‹w24›   SLACK_WORKFLOW
stripe-restricted-test rk_test_‹w24-99›                               STRIPE_RESTRICTED
digitalocean-refresh   dor_v1_‹h64›                                   DO_REFRESH_TOKEN
vault-recovery         hvr.‹b90-120›                                  VAULT_RECOVERY
vault-short            hvs.‹w24›                                      VAULT_TOKEN
heroku                 HRKU-AA‹b58›                                   HEROKU_API_KEY
cloudflare-origin      v1.0-‹h24›-‹h146›                              CF_ORIGIN_CA_KEY
new-relic-license      ‹h36›FFFFNRAL                                  NEW_RELIC_LICENSE_KEY
grafana-old            eyJrIjoi‹w80›==                                GRAFANA_API_KEY
sentry-org             sntrys_eyJpYXQiO‹B80›LCJyZWdpb25fdXJs‹B40›==_‹B43›   SENTRY_AUTH_TOKEN
shopify-custom         shpca_‹h32›                                    SHOPIFY_TOKEN
shopify-private        shppa_‹h32›                                    SHOPIFY_PASSWORD
square-secret          sq0csp-‹b43›                                   SQUARE_SECRET
paypal                 access_token$production$‹l16›$‹h32›            BRAINTREE_ACCESS_TOKEN
rubygems               rubygems_‹h48›                                 GEM_HOST_API_KEY
crates                 cio‹w32›                                       CARGO_REGISTRY_TOKEN
supabase-secret        sb_secret_‹b22›_‹b8›                           SUPABASE_SECRET_KEY
planetscale-password   pscale_pw_‹b43›                                DATABASE_PASSWORD
tailscale-api          tskey-api-‹w12›CNTRL-‹w32›                     TAILSCALE_API_KEY
artifactory-reference  cmVmdGtuOjAx‹w52›                              JFROG_TOKEN
nuget                  oy2‹l43›                                       NUGET_API_KEY
adafruit               aio_‹w28›                                      ADAFRUIT_IO_KEY
easypost-test          EZTK‹h54›                                      EASYPOST_TEST_KEY
readme                 rdme_‹l70›                                     README_API_KEY
circleci               CCIPAT_‹w22›_‹h40›                             CIRCLECI_TOKEN
frameio                fio-u-‹b64›                                    FRAMEIO_TOKEN
doppler-service        dp.st.prd.‹w43›                                DOPPLER_TOKEN
langsmith-service      lsv2_sk_‹h32›_‹h10›                            LANGCHAIN_API_KEY
fly                    fo1_‹b43›                                      FLY_API_TOKEN
brevo                  xkeysib-‹h64›-‹w16›                            BREVO_API_KEY
harness                pat.‹b22›.‹h24›.‹w20›                          HARNESS_API_KEY
openshift              sha256~‹b43›                                   OC_TOKEN
nvidia                 nvapi-‹b64›                                    NVIDIA_API_KEY
tavily                 tvly-dev-‹w32›                                 TAVILY_API_KEY
firecrawl              fc-‹h32›                                       FIRECRAWL_API_KEY
resend                 re_‹w8›_‹w24›                                  RESEND_API_KEY
pinecone               pcsk_‹w6›_‹w63›                                PINECONE_API_KEY
posthog                phx_‹w43›                                      POSTHOG_PERSONAL_KEY
hubspot                pat-na1-‹uuid›                                 HUBSPOT_TOKEN
bitbucket              BBDC-‹B44›                                     BITBUCKET_TOKEN
docker-organization    dckr_oat_‹b32›                                 DOCKER_TOKEN
flutterwave-live       FLWSECK-‹h32›-X                                FLW_LIVE_KEY
atlassian              ATATT3xFfGF0‹b170›=‹H8›                        ATLASSIAN_API_TOKEN
"""

NAMED = """
cloudflare-global      ‹h37›           CLOUDFLARE_API_KEY
auth0                  ‹b64›           AUTH0_CLIENT_SECRET
vercel                 ‹w24›           VERCEL_TOKEN
deepseek               ‹h32›           DEEPSEEK_API_KEY
confluent              ‹B64›           CONFLUENT_API_SECRET
snowflake              ‹w20›           SNOWFLAKE_PASSWORD
azure-openai           ‹h32›           AZURE_OPENAI_API_KEY
codecov                ‹uuid›          CODECOV_TOKEN
mailjet                ‹h32›           MAILJET_SECRET_KEY
"""

BARE = r"""
<‹!S›>
Key in use: ‹!S›
*‹!S›*
auth failed with ‹!S›: expired
new Client('‹!S›', { retries: 3 })
␛[38;5;208m‹!S›␛[0m␛[K
GET https://‹host›/data?apikey=‹!S›
wget --header="PRIVATE-TOKEN: ‹!S›" https://‹host›/a.zip
http GET ‹host›/items "Authorization:Bearer ‹!S›"
>>> client.key⏎'‹!S›'
panic: invalid credential "‹!S›" [recovered]
<Header name="Authorization">‹!S›</Header>
user says: hier ist der Schlüssel ‹!S› bitte benutzen
id,token,created⏎1,‹!S›,2024-05-01
["‹!S›"]
"""
KEYED = r"""
‹k› = '‹!S›'  # TODO rotate
"‹k›" => "‹!S›",
:‹k› => '‹!S›'
‹K› ?= ‹!S›
ARG ‹K›="‹!S›"
docker build --build-arg ‹K›=‹!S› .
Environment=‹K›=‹!S›
<‹k›>‹!S›</‹k›>
setx ‹K› "‹!S›"
[Environment]::SetEnvironmentVariable("‹K›", "‹!S›")
val ‹k› = "‹!S›"
let ‹k› = String::from("‹!S›");
‹k› := "‹!S›"
-    ‹k›: '‹!S›'
fly secrets set ‹K›=‹!S›
{"message": "{\"‹k›\":\"‹!S›\"}"}
| ‹K› | `‹!S›` |
‹K› is set to ‹!S›
"""
CUT = r"""
‹K›='‹!S›… <+1204>
Authorization: Bearer ‹!S›…
"""

KEYS = """
AUTH_PASS userPwd sftp_password wifi_password masterKey MASTER_KEY api_secret apiSecret bearer_token bearerToken account_key storageAccountKey
RAILS_MASTER_KEY SECRET_KEY_BASE DJANGO_SECRET_KEY NEXTAUTH_SECRET COOKIE_SECRET MINIO_ROOT_PASSWORD RABBITMQ_DEFAULT_PASS FTP_PASS proxy_password
vault_password ansible_become_pass truststorePassword javax.net.ssl.keyStorePassword sasl.password hmac_key shared_secret oauth_token_secret
personal_access_token deploy_token totp_secret encryption-key X-Auth-Key secretAccessKey pass adminPass BACKUP_PASSPHRASE
""".split()

POSITIVE = {
    "assignment": r"""
‹k› = "‹!qany›";
"‹K›" : "‹!qany›",
‹K›->'‹!any›'
:‹k› => "‹!any›",
val ‹k›: String = "‹!any›"
var ‹k› string = "‹!any›"
let ‹k› = "‹!any›".to_string();
final ‹k› = '‹!any›';
string ‹k› = @"‹!any›";
define('‹U›', '‹!any›');
‹k›=f"‹!any›",
db = pymysql.connect(host="‹host›", user="‹user›", ‹k›="‹!any›", database="‹name›")
new Pool({ host: '‹host›', user: '‹user›', ‹k›: '‹!any›' })
credentials = ("‹user›", "‹!any›")
passwort: ‹!pw›
contraseña = "‹!pw›"
Here are the credentials, user ‹user› and password ‹!pw›
use the password "‹!qpw›" for the admin account
pwd → ‹!pw›
map[‹k›:‹!any› user:‹user›]
&Config{Host:"‹host›", Password:"‹!any›"}
User(id=‹d2›, name='‹user›', ‹k›='‹!pw›')
Array⏎(⏎    [user] => ‹user›⏎    [‹k›] => ‹!any›⏎)
‹k› = "‹!w6›\\\"‹!w6›"
auth=("‹user›", '‹!pw›'),
Cypress.env('‹k›', '‹!any›')
‹K› = <<EOT⏎‹!tok›⏎EOT
with ‹k› '‹!any›' the login works
""",
    "env": r"""
‹U›=‹!any› ; export ‹U›
declare -x ‹U›="‹!any›"
‹U›=‹!any› NODE_ENV=test npm run e2e
export A=1 ‹U›='‹!qany›' B=2
      ‹U›: "‹!any›"
docker compose run -e ‹U›="‹!any›" web
$ env | grep ‹U›⏎‹U›=‹!any›
+ export ‹U›=‹!any›
launchctl setenv ‹U› ‹!any›
""",
    "yaml": r"""
‹k› : ‹!any›
"‹k›": ‹!any›
spring:⏎  datasource:⏎    username: ‹user›⏎    ‹k›: ‹!any›
all:⏎  vars:⏎    ansible_user: ‹user›⏎    ‹k›: "‹!qany›"
[database]⏎host = ‹host›⏎‹k› = ‹!any›
[server]⏎‹k› = "‹!qany›"⏎port = 80
<property name="‹k›" value="‹!any›"/>
<param name='‹k›'>‹!any›</param>
<setting name="‹k›">⏎  <value>‹!any›</value>⏎</setting>
""",
    "cli": r"""
‹name› auth --username=‹user› --passphrase '‹!qpw›'
‹name› connect --client-secret ‹!tok› --tenant x
‹name› run --auth-token=‹!tok› job.yml
‹name› --db-password ‹!pw› migrate
mysqladmin -u root -p‹!pw› status
mongosh "‹host›/‹name›" -u ‹user› -p ‹!pw›
psql "postgresql://‹host›/‹name›?user=‹user›&password=‹!pw›"
curl -su '‹user›:‹!pw›' https://‹host›/api
wget --user=‹user› --password=‹!pw› https://‹host›/f
smbclient //‹host›/share -U ‹user›%‹!pw›
net use Z: \\‹host›\share /user:‹user› ‹!pw›
az login --service-principal -u ‹uuid› -p ‹!tok› --tenant ‹uuid›
helm install ‹name› . --set auth.password=‹!pw›
ansible-playbook site.yml -e "db_password=‹!pw›"
vault kv put secret/‹name› password=‹!pw›
echo '‹user›:‹!pw›' | chpasswd
ldapsearch -x -D "cn=admin" -w ‹!pw› -b dc=example
zip -P ‹!pw› out.zip a.txt
rabbitmqctl add_user ‹user› ‹!pw›
htpasswd -b .htpasswd ‹user› ‹!pw›
gpg --batch --passphrase ‹!pw› -d a.gpg
‹name› --secret=‹!tok›
""",
    "header": r"""
authorization=Bearer ‹!tok›
"Authorization": "Basic ‹!basic›"
PRIVATE-TOKEN: ‹!tok›
X-Vault-Token: ‹!tok›
Ocp-Apim-Subscription-Key: ‹!h32›
X-CSRF-Token: ‹!b43›
x-goog-api-key: ‹!tok›
Authorization: Digest username="‹user›", realm="x", nonce="‹h32›", uri="/", response="‹!h32›"
Authorization: ApiKey ‹!tok›
< x-auth-token: ‹!tok›
headers.set('Authorization', 'Bearer ‹!tok›');
http.Header{"Authorization": {"Bearer ‹!tok›"}}
""",
    "url": r"""
clickhouse://‹user›:‹!pw›@‹host›:9000/‹name›
mssql+pyodbc://‹user›:‹!uany›@‹host›/‹name›
sftp://‹user›:‹!pw›@‹host›/home
nats://‹user›:‹!pw›@‹host›:4222
amqps://‹user›:‹!utok›@‹host›/vhost
postgres://‹user›:‹!pw›@h1.example.com:5432,h2.example.com:5432/‹name›
[remote "origin"]⏎⇥url = https://x-access-token:‹!utok›@github.com/acme/‹name›.git
<a href="https://‹user›:‹!pw›@‹host›/">link</a>
socks5://‹user›:‹!pw›@‹host›:1080
https://‹host›/hook?token=‹!utok›#top
wss://‹host›/ws?auth_token=‹!utok›
(postgres://‹user›:‹!pw›@‹host›/‹name›)
""",
    "dsn": r"""
Driver={ODBC Driver 18 for SQL Server};Server=‹host›;UID=‹user›;PWD=‹!any›
mongodb://‹host›/?authSource=admin&password=‹!any›
AccountEndpoint=https://‹name›.documents.azure.com:443/;AccountKey=‹!B86›==;
HostName=‹name›.azure-devices.net;DeviceId=d1;SharedAccessKey=‹!B43›=
‹user›/‹!pw›@//‹host›:1521/ORCL
dbname='‹name›' user='‹user›' password='‹!qpw›'
‹user›:$2y$10$‹!w53›
_auth=‹!basic›
index-servers =⏎  pypi⏎[pypi]⏎username = __token__⏎password = ‹!tok›
{"auths": {"registry.example.com": {"auth": "‹!basic›"}}}
""",
    "pem": r"""
‹dash›BEGIN DSA PRIVATE KEY‹dash›⏎‹!pem›⏎‹dash›END DSA PRIVATE KEY‹dash›
  ‹dash›BEGIN RSA PRIVATE KEY‹dash›⏎    ‹!ipem›⏎  ‹dash›END RSA PRIVATE KEY‹dash›
{"pem": "‹dash›BEGIN OPENSSH PRIVATE KEY‹dash›\\n‹!epem›\\n‹dash›END OPENSSH PRIVATE KEY‹dash›"}
+‹dash›BEGIN PRIVATE KEY‹dash›⏎+‹!pem›
const key = `‹dash›BEGIN ENCRYPTED PRIVATE KEY‹dash›⏎‹!pem›⏎‹dash›END ENCRYPTED PRIVATE KEY‹dash›`;
‹dash›BEGIN RSA PRIVATE KEY‹dash› ‹!flatpem›
PuTTY-User-Key-File-3: ssh-rsa⏎Private-Lines: 4⏎‹!pem›⏎Private-MAC: ‹h64›
""",
    "cookie": r"""
Cookie: a=1; _session_id=‹!h32›
set-cookie: auth=‹!jwt›; Max-Age=3600
"cookies": {"sessionid": "‹!l32›"}
Cookie: wordpress_logged_in_x=‹!b43›; lang=de
http --session=x ‹host› 'Cookie:sid=‹!l32›'
""",
    "sql": r"""
ALTER USER '‹user›' IDENTIFIED WITH caching_sha2_password BY '‹!any›';
ALTER ROLE ‹user› PASSWORD '‹!qany›' VALID UNTIL 'infinity';
INSERT INTO users (name, password) VALUES ('‹user›', '‹!any›');
CREATE USER ‹user› PASSWORD = '‹!any›' DEFAULT_ROLE = x;
ALTER LOGIN [‹user›] WITH PASSWORD=N'‹!any›'
""",
    "file": r"""
‹user›@‹host›'s login⏎⏎user: ‹user›⏎pass: ‹!pw›⏎db: mysql://‹user›:‹!pw›@‹host›/‹name›
provider "x" {⏎  api_token  = "‹!tok›"⏎  account_id = "‹h32›"⏎}
<configuration>⏎  <connectionStrings>⏎    <add name="Main" connectionString="Server=‹host›;User Id=‹user›;Password=‹!any›;" />⏎  </connectionStrings>⏎</configuration>
auth:⏎  jwt:⏎    secret: ‹!tok›⏎    expires: 3600⏎  smtp: {user: ‹user›, pass: ‹!pw›}
{"kind": "Secret", "apiVersion": "v1", "data": {"password": "‹!kpw›", "username": "YWRtaW4="}}
signingConfigs {⏎    release {⏎        storePassword "‹!pw›"⏎        keyAlias "main"⏎        keyPassword '‹!pw›'⏎    }⏎}
""",
}

JSON_POSITIVE = r"""
{"login": {"username": "‹user›", "‹K›": "‹!qany›"}, "ok": true}
{"params": {"‹K›": "‹!any›"}, "method": "POST"}
{"secrets": ["‹!tok›", "‹!tok›"]}
{"headers": {"X-Api-Key": "‹!tok›"}}
{"connection": "Server=‹host›;User Id=‹user›;Password=‹!any›;"}
{"tool": "Bash", "input": {"command": "export ‹U›='‹!any›' && make deploy"}}
{"Key": "‹U›", "Value": "‹!any›"}
"""

NEGATIVE = {
    "code": r"""
password = prompt("New password")
password = request.form["password"]
const [password, setPassword] = useState("");
<PasswordInput value={password} onChange={setPassword} />
token = self._read_token(stream)
if (token.kind === SyntaxKind.OpenBraceToken) {
func (s *Server) checkToken(token string) error {
fn verify(password: &str, hash: &str) -> bool {
private string _password = string.Empty;
public const string SecretKey = nameof(SecretKey);
@Value("${spring.datasource.password}")
@Column(name = "password", nullable = false)
password = models.CharField(max_length=128)
password = serializers.CharField(write_only=True)
api_key = Header(default=None, alias="X-Api-Key")
access_token = create_access_token(identity=user.id)
token, err := jwt.ParseWithClaims(raw, &claims, keyFunc)
auth: Bearer(token)
assert mask("secret") == "***"
cookies = response.cookies.get_dict()
session = requests.Session()
secret_key: bytes = os.urandom(32)
KEY_PASSWORD = "password"
PASSWORD_FIELD = 'password'
key_prefix = "cache:"
keys = list(data.keys())
api_keys: list[ApiKey] = relationship(back_populates="user")
password?: string
token: z.string().min(1),
password: Joi.string().required(),
password: { type: String, required: true, select: false },
validates :password, presence: true, length: { minimum: 8 }
pass
pass  # nothing to do
passed=12, failed=0
bypass = True
compass: north
ACCESS_TOKEN_EXPIRE_MINUTES = ‹d2›
token_type="bearer"
PasswordAuthentication no
unset DB_PASSWORD
if [ -z "$API_KEY" ]; then
const token = jwt.sign(payload, SECRET);
const hash = await bcrypt.hash(password, 10);
token = await self.fetch_token(client_id, client_secret)
var apiKey = builder.Configuration["ApiKey"];
password = ENV.fetch("DB_PASSWORD") { "" }
password=%s
password = :password
WHERE password = ?
SET password = EXCLUDED.password
token<T>(value: T): Token<T>
data class Login(val user: String, val password: String)
token_ids: torch.Tensor,
mask_token=tokenizer.mask_token,
private key: CryptoKey
this.token = null;
credentials: 'same-origin',
credentials: include
autocomplete="current-password"
secret_santa = pick(names)
def _get_api_key(self) -> str | None:
""",
    "reference": r"""
password: {{ .Values.db.password | quote }}
password = "${random_password.db.result}"
DB_PASSWORD=<password>
DB_PASSWORD=...
token: "<insert token here>"
API_KEY="replace-me"
secret_key = "REPLACE_WITH_YOUR_SECRET"
api_key: ${env:API_KEY}
password: env(DB_PASSWORD)
password: $(DB_PASSWORD)
password: file:///run/secrets/pw
token: @env:TOKEN
Authorization: Bearer {token}
Authorization: Basic <base64>
ghp_‹x36›
xoxb-your-token
https://user:***@‹host›/
redis://:$REDIS_PASSWORD@‹host›:6379
sk_test_...
--password <password>
password = local.db_password
aws_secret_access_key = ****************
password: "<%= password %>"
token: !Ref ApiToken
MasterUserPassword: !Sub "{{resolve:secretsmanager:‹name›:SecretString:password}}"
GITHUB_TOKEN: ${{ github.token }}
password = "TODO"
api_key = "dummy"
--token=<TOKEN>
PGPASSWORD=${PGPASSWORD} psql -h ‹host›
""",
    "prose": r"""
Your password has been changed.
Passwords do not match
What is the secret behind its speed?
Token limit exceeded: ‹d5› tokens
The cookie banner hides the login button.
Key findings: three of four tests pass.
See the section on API keys in the docs.
"forgotPassword": "Mot de passe oublié ?"
"password": "Contraseña"
Error: Invalid token
error: password authentication failed for user "‹user›"
remote: Support for password authentication was removed.
Enter passphrase for key '/home/‹user›/.ssh/id_rsa':
The access token has a lifetime of ‹d2› minutes.
1. Create an API key. 2. Export it. 3. Run the script.
Secret: the recipe was never written down.
token: the smallest unit of text a model reads
Authorization: required for all endpoints
pam_unix(sshd:auth): authentication failure; user=‹user›
We never store passwords in plain text.
Key: Enter. Shortcut: Ctrl+K.
The token bucket refills at ‹d2› tokens per second.
"label.password": "Kennwort eingeben"
""",
    "ids": r"""
Merge ‹h40› into ‹h40›
tree ‹h40›⏎parent ‹h40›
"shasum": "‹h40›"
"contentHash": "‹h64›"
  version "1.0.‹d1›"⏎  resolved "https://registry.yarnpkg.com/x#‹h40›"⏎  integrity sha512-‹B86›==
{ url = "https://files.example.org/x.whl", hash = "sha256:‹h64›", size = ‹d5› },
X-Request-Id: ‹uuid›
x-amz-request-id: ‹u16›
"item_id": "msg_‹h48›"
"previous_response_id": "resp_‹h48›"
"container": "cntr_‹h48›"
batch_‹h32›
vs_‹h32›
call_‹h32›
toolu_vrtx_01‹w22›
toolu_bdrk_01‹w22›
"message_id": "msg_bdrk_01‹w22›"
tool_use_id=toolu_01‹w22› is_error=false
ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAI‹B100›= ‹user›@host
‹dash›BEGIN PGP PUBLIC KEY BLOCK‹dash›⏎‹certbody›⏎‹dash›END PGP PUBLIC KEY BLOCK‹dash›
GPG key fingerprint: ‹H40›
url(data:font/woff2;base64,d09GMgAB‹B200›)
"nextCursor": "‹w24›"
0x‹h64›
blob:‹h64›
urn:uuid:‹uuid›
vpc-‹h17› subnet-‹h17› i-0‹h16›
sha1:‹h40›
"key": "‹uuid›"
"resultId": "‹ulid›"
#‹h7› #‹h40›
"hash": "‹h64›", "prevHash": "‹h64›"
sha256sum: ‹h64›  dist.tar.gz
"tree": {"sha": "‹h40›"}
"thread": "thread_‹w24›", "assistant": "asst_‹w24›"
req_vrtx_01‹w22›
""",
    "ordinary": r"""
https://‹host›/oauth/authorize?client_id=web&scope=read
mailto:‹user›@example.com
rsync -av ‹user›@‹host›:/var/log/ .
ssh -i ~/.ssh/id_ed25519 ‹user›@‹host›
ssh -p 22 -l ‹user› ‹host›
mkdir -p secrets/keys
docker run -p 8080:80 ‹name›
cp -p a b
curl -u ‹user› https://‹host›/
psql -h ‹host› -U ‹user› -d ‹name›
passwd: files systemd
root:x:0:0:root:/root:/bin/bash
vault secrets list
kubectl create secret generic ‹name› --from-file=./cfg
Proxy-Connection: keep-alive
Set-Cookie: lang=de; Path=/; SameSite=Lax
tokens/s: ‹d2›.‹d1›
 12 files changed, 340 insertions(+), ‹d2› deletions(-)
INFO [auth] login ok user=‹user› method=password
latency p50=‹d2›ms p99=‹d3›ms key=GET /items
export AWS_REGION=eu-west-1
git remote add origin https://github.com/acme/‹name›.git
tail -f /var/log/auth.log
make test PASS=1
https://‹host›/auth/callback?state=abc&error=access_denied
id=5&sort=key&order=asc
""",
}

JSON_NEGATIVE = r"""
{"input_tokens": 2095, "output_tokens": 503, "cache_read_input_tokens": 0}
{"tokens": [15496, 11, 995], "token": 15496}
{"name": "login", "parameters": {"properties": {"password": {"type": "string"}, "token": {"type": "string", "default": ""}}}}
{"type": "tool_use", "id": "toolu_01‹w22›", "name": "Grep", "input": {"pattern": "secret_key\\s*=", "path": "."}}
{"previous_response_id": "resp_‹h48›", "call_id": "call_‹w24›"}
{"password": {"min_length": 8, "require_digit": true}}
{"auth": {"type": "bearer", "tokenUrl": "https://‹host›/token"}}
{"errors": {"password": ["can't be blank", "is too short"]}}
{"keys": ["id", "name"], "primaryKey": "id", "key": "ArrowLeft"}
{"question": "What is the password policy?", "answer": "At least 12 characters"}
{"stop_reason": "max_tokens", "max_tokens": 1024}
{"scopes": ["token:read", "secret:write"], "token_type": "Bearer", "expires_in": 3600}
"""

WRAPS = r"""
‹T›
-‹T›
> ‹T›
<output>⏎‹T›⏎</output>
E   ‹T›
‹h8› (‹user› 2024-03-1‹d1› 09:12:44 +0100 ‹d2›) ‹T›
Step ‹d1›/12 : ‹prose›⏎‹T›
"""

HELD = Part(VENDORS, NAMED, BARE, KEYED, CUT, KEYS, POSITIVE, JSON_POSITIVE, NEGATIVE, JSON_NEGATIVE, WRAPS)
