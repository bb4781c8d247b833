# ruff: noqa: E501 - a template is one line
"""The templates that the engine of redaction is built against.

Owns: the part "dev" of the corpus. The language is that of secret_corpus.py.
Must never: hold a literal that a scanner of secrets would take for a secret.
"""

from __future__ import annotations

from secret_corpus import Part

# Vendors whose tokens show what they are. Columns: name, shape, usual key name.
VENDORS = """
openai                 sk-‹w20›T3BlbkFJ‹w20›                          OPENAI_API_KEY
openai-project         sk-proj-‹b74›T3BlbkFJ‹b74›                     OPENAI_API_KEY
openai-service         sk-svcacct-‹b58›T3BlbkFJ‹b58›                  OPENAI_API_KEY
anthropic              sk-ant-api03-‹b93›AA                           ANTHROPIC_API_KEY
anthropic-admin        sk-ant-admin01-‹b93›AA                         ANTHROPIC_ADMIN_KEY
github-personal        ghp_‹w36›                                      GITHUB_TOKEN
github-oauth           gho_‹w36›                                      GH_TOKEN
github-server          ghs_‹w36›                                      GITHUB_TOKEN
github-fine            github_pat_‹w22›_‹w59›                         GITHUB_TOKEN
gitlab-personal        glpat-‹b20›                                    GITLAB_TOKEN
gitlab-routable        glpat-‹b27-60›.‹l9›                          GITLAB_TOKEN
gitlab-deploy          gldt-‹b20›                                     CI_DEPLOY_PASSWORD
gitlab-runner          glrt-‹b20›                                     RUNNER_TOKEN
gitlab-trigger         glptt-‹h40›                                    TRIGGER_TOKEN
aws-access-key         AKIA‹r16›                                      AWS_ACCESS_KEY_ID
aws-temporary-key      ASIA‹r16›                                      AWS_ACCESS_KEY_ID
google-api             AIza‹b35›                                      GOOGLE_API_KEY
google-oauth-access    ya29.a0‹b100-170›                              GOOGLE_OAUTH_TOKEN
google-client-secret   GOCSPX-‹b28›                                   GOOGLE_CLIENT_SECRET
azure-ad               ‹w3›8Q~‹b34›                                   AZURE_CLIENT_SECRET
slack-bot              xoxb-‹d12›-‹d13›-‹w24›                         SLACK_BOT_TOKEN
slack-user             xoxp-‹d12›-‹d12›-‹d13›-‹h32›                   SLACK_TOKEN
slack-app              xapp-1-A‹u10›-‹d13›-‹h64›                      SLACK_APP_TOKEN
slack-webhook          https://hooks.slack.com/services/T‹u10›/B‹u10›/‹w24›   SLACK_WEBHOOK_URL
stripe-live            sk_live_‹w24›                                  STRIPE_SECRET_KEY
stripe-live-long       sk_live_51‹w97›                                STRIPE_SECRET_KEY
stripe-test            sk_test_51‹w97›                                STRIPE_SECRET_KEY
stripe-restricted      rk_live_‹w24-99›                               STRIPE_KEY
stripe-webhook         whsec_‹w32›                                    STRIPE_WEBHOOK_SECRET
twilio-key             SK‹h32›                                        TWILIO_API_KEY
sendgrid               SG.‹b22›.‹b43›                                 SENDGRID_API_KEY
mailgun                key-‹h32›                                      MAILGUN_API_KEY
mailchimp              ‹h32›-us‹d1›                                   MAILCHIMP_API_KEY
npm                    npm_‹w36›                                      NPM_TOKEN
pypi                   pypi-AgEIcHlwaS5vcmc‹b130-170›                 TWINE_PASSWORD
docker-hub             dckr_pat_‹b27›                                 DOCKERHUB_TOKEN
vault-service          hvs.‹b90-120›                                  VAULT_TOKEN
vault-batch            hvb.‹b140-160›                                 VAULT_TOKEN
terraform-cloud        ‹w14›.atlasv1.‹b67›                            TF_API_TOKEN
databricks             dapi‹h32›                                      DATABRICKS_TOKEN
digitalocean           dop_v1_‹h64›                                   DIGITALOCEAN_TOKEN
digitalocean-oauth     doo_v1_‹h64›                                   DO_TOKEN
new-relic-user         NRAK-‹u27›                                     NEW_RELIC_API_KEY
grafana-service        glsa_‹w32›_‹h8›                                GRAFANA_TOKEN
grafana-cloud          glc_eyJ‹B60-120›                               GRAFANA_CLOUD_TOKEN
sentry-user            sntryu_‹h64›                                   SENTRY_AUTH_TOKEN
linear                 lin_api_‹w40›                                  LINEAR_API_KEY
notion                 ntn_‹d11›‹w35›                                 NOTION_TOKEN
notion-old             secret_‹w43›                                   NOTION_API_KEY
airtable               pat‹w14›.‹h64›                                 AIRTABLE_TOKEN
figma                  figd_‹b40›                                     FIGMA_TOKEN
shopify-access         shpat_‹h32›                                    SHOPIFY_ACCESS_TOKEN
shopify-secret         shpss_‹h32›                                    SHOPIFY_API_SECRET
square                 sq0atp-‹b22›                                   SQUARE_TOKEN
square-access          EAAA‹b60›                                      SQUARE_ACCESS_TOKEN
plaid                  access-sandbox-‹uuid›                          PLAID_ACCESS_TOKEN
telegram               ‹d9›:AA‹b33›                                   TELEGRAM_BOT_TOKEN
discord-bot            MT‹w24›.G‹b5›.‹b38›                            DISCORD_TOKEN
discord-webhook        https://discord.com/api/webhooks/‹d18›/‹b68›   DISCORD_WEBHOOK
facebook               EAAC‹w120-180›                                 FB_ACCESS_TOKEN
dropbox                sl.‹b130-140›                                  DROPBOX_TOKEN
postman                PMAK-‹h24›-‹h34›                               POSTMAN_API_KEY
pulumi                 pul-‹h40›                                      PULUMI_ACCESS_TOKEN
doppler                dp.pt.‹w43›                                    DOPPLER_TOKEN
netlify                nfp_‹w36›                                      NETLIFY_AUTH_TOKEN
supabase               sbp_‹h40›                                      SUPABASE_ACCESS_TOKEN
planetscale            pscale_tkn_‹b43›                               PLANETSCALE_TOKEN
hugging-face           hf_‹a34›                                       HF_TOKEN
replicate              r8_‹w37›                                       REPLICATE_API_TOKEN
groq                   gsk_‹w52›                                      GROQ_API_KEY
perplexity             pplx-‹w48›                                     PERPLEXITY_API_KEY
xai                    xai-‹w80›                                      XAI_API_KEY
langsmith              lsv2_pt_‹h32›_‹h10›                            LANGSMITH_API_KEY
tailscale              tskey-auth-‹w11›CNTRL-‹w32›                    TS_AUTHKEY
onepassword            ops_eyJ‹B260›                                  OP_SERVICE_ACCOUNT_TOKEN
age                    AGE-SECRET-KEY-1‹c58›                          SOPS_AGE_KEY
artifactory            AKCp‹w69›                                      ARTIFACTORY_API_KEY
easypost               EZAK‹h54›                                      EASYPOST_API_KEY
flutterwave            FLWSECK_TEST-‹h32›-X                           FLW_SECRET_KEY
typeform               tfp_‹b43›_‹w15›                                TYPEFORM_TOKEN
prefect                pnu_‹l36›                                      PREFECT_API_KEY
buildkite              bkua_‹h40›                                     BUILDKITE_TOKEN
sourcegraph            sgp_‹h16›_‹h40›                                SRC_ACCESS_TOKEN
contentful             CFPAT-‹b43›                                    CONTENTFUL_TOKEN
dynatrace              dt0c01.‹r24›.‹r64›                             DT_API_TOKEN
duffel                 duffel_test_‹b43›                              DUFFEL_TOKEN
shippo                 shippo_live_‹h40›                              SHIPPO_TOKEN
google-refresh         1//0‹w1›‹b60-90›                               GOOGLE_REFRESH_TOKEN
jwt                    ‹jwt›                                          ACCESS_TOKEN
jwt-unsigned           ‹jwtbare›                                      ID_TOKEN
"""

# Vendors whose tokens show nothing by themselves: only beside their key name.
NAMED = """
aws-secret             ‹B40›           AWS_SECRET_ACCESS_KEY
aws-secret-lower       ‹B40›           aws_secret_access_key
aws-session            IQoJb3JpZ2lu‹B200-300›==   AWS_SESSION_TOKEN
datadog                ‹h32›           DD_API_KEY
datadog-app            ‹h40›           DATADOG_APP_KEY
heroku                 ‹uuid›          HEROKU_API_KEY
cloudflare             ‹b40›           CLOUDFLARE_API_TOKEN
twilio-auth            ‹h32›           TWILIO_AUTH_TOKEN
azure-storage          ‹B86›==         AZURE_STORAGE_KEY
cohere                 ‹w40›           COHERE_API_KEY
mistral                ‹w32›           MISTRAL_API_KEY
wandb                  ‹h40›           WANDB_API_KEY
fastly                 ‹b32›           FASTLY_API_TOKEN
asana                  1/‹d16›:‹h32›   ASANA_ACCESS_TOKEN
lob                    test_‹h35›      LOB_API_KEY
consul                 ‹uuid›          CONSUL_HTTP_TOKEN
vault-old              s.‹w24›         VAULT_TOKEN
twitter                AAAAAAAAAAAAAAAAAAAAA‹w80›   TWITTER_BEARER_TOKEN
okta                   00‹b40›         OKTA_API_TOKEN
algolia                ‹h32›           ALGOLIA_ADMIN_KEY
"""

# What carries a vendor's token without naming it
BARE = r"""
‹!S›
Use ‹!S› for now, I will rotate it tomorrow.
the token is ‹!S›.
I exported "‹!S›" and the call went through.
`‹!S›` is what the console gave me
(‹!S›)
␛[32m‹!S›␛[0m
␛[1;33mwarn␛[0m leaked ␛[31m‹!S›␛[39m in output
Error: 401 Unauthorized for key ‹!S›, request id ‹uuid›
curl -s https://‹host›/v1/models -H "Authorization: Bearer ‹!S›"
curl -H 'x-api-key: ‹!S›' https://‹host›/v1/items
GET /v1/items?limit=10&access_token=‹!S› HTTP/1.1
https://‹host›/v2/list?key=‹!S›&page=2
<config endpoint="https://‹host›" auth="‹!S›"/>
<td>‹!S›</td>
[‹!S›, null]
2024-05-1‹d1›T10:‹d1›1:0‹d1›Z INFO client auth=‹!S› status=200
Traceback (most recent call last):⏎  File "/app/main.py", line ‹d2›, in <module>⏎AuthError: bad credential '‹!S›'
| service | credential |⏎|---|---|⏎| ‹name› | ‹!S› |
- ‹!S›  # old one
$ echo ‹!S› | base64
client = Client("‹!S›")
connect(‹!S›)
{'k': '‹!S›'}
foo=‹!S›;bar=1
-- ‹!S› --
Authorization: token ‹!S›
"""
# ... and what names it
KEYED = r"""
export ‹K›=‹!S›
export ‹K›="‹!S›"
‹K›=‹!S›
‹K›='‹!S›'
‹K›: ‹!S›
‹K›: "‹!S›"
  ‹k›: ‹!S›
set ‹K›=‹!S›
$env:‹K› = "‹!S›"
ENV ‹K›=‹!S›
docker run --rm -e ‹K›=‹!S› -p 8080:8080 ‹name›:latest
os.environ["‹K›"] = "‹!S›"
process.env.‹K› = '‹!S›';
const ‹k› = "‹!S›";
‹k› = "‹!S›"
‹k›: str = "‹!S›"
+  ‹k›: ‹!S›
 level=info msg=started ‹k›=‹!S› port=8080
<add key="‹K›" value="‹!S›" />
variable "‹k›" {⏎  default = "‹!S›"⏎}
{"‹k›": "‹!S›", "region": "eu-west-1"}
{"env": {"‹K›": "‹!S›"}, "debug": false}
{\"‹k›\": \"‹!S›\", \"n\": 1}
- name: ‹K›⏎  value: ‹!S›
{'‹K›': '‹!S›'}
"‹K›": "‹!S›",
kubectl create secret generic app --from-literal=‹k›=‹!S›
[default]⏎‹k› = ‹!S›⏎region = eu-west-1
printenv⏎HOME=/root⏎‹K›=‹!S›⏎SHELL=/bin/bash
"""
CUT = r"""
‹K›=‹!S›… [truncated]
"‹K›": "‹!S›...
token: ‹!S›[...]
Found ‹!S›… (output cut)
"""

# Key names of credentials, and values that show nothing by themselves
KEYS = """
password passwd pwd passphrase secret token api_key apikey apiKey API_KEY access_token accessToken auth_token authToken refresh_token refreshToken
client_secret clientSecret private_key secret_key SECRET_KEY db_password DB_PASSWORD dbPassword DATABASE_PASSWORD POSTGRES_PASSWORD PGPASSWORD
MYSQL_ROOT_PASSWORD MYSQL_PWD REDIS_PASSWORD SMTP_PASSWORD EMAIL_HOST_PASSWORD JWT_SECRET SESSION_SECRET signing_key encryption_key webhook_secret
admin_password user_password old_password new_password root_password password_confirmation bot_token session_token id_token csrf_secret app_secret DB_PASS SMTP_PASS consumer_secret
x-api-key api-key Password SecretKey ConnectionPassword credentials ldap_bind_password keystore_password spring.datasource.password mail.smtp.password
""".split()

POSITIVE = {
    "assignment": r"""
‹K›=‹!any›
‹K› = ‹!tok›
‹K›="‹!qany›"
‹K› = "‹!qany›"
‹K› = '‹!qany›'
‹K›: "‹!qany›"
‹K› := "‹!qany›"
‹K› => '‹!any›',
self.‹k› = "‹!any›"
‹k›: str = "‹!any›"
const ‹k› = '‹!any›';
let ‹k›: string = "‹!any›";
private static final String ‹U› = "‹!any›";
var ‹k› = `‹!any›`
config["‹K›"] = "‹!any›"
client = connect(host="‹host›", user="‹user›", ‹k›="‹!any›", timeout=30)
Client(‹k›='‹!any›')
login("‹user›", ‹k›="‹!any›")
level=info user=‹user› ‹K›=‹!any› status=ok
user ‹user› logged in with ‹k›=‹!pw›, ip=10.0.0.‹d1›
‹K›⇥=⇥‹!any›
if ‹k› == "‹!tok›":
The ‹k› is "‹!any›" and it works.
My password is ‹!pw›
password is: ‹!pw›
the admin password is ‹!pw› for ‹host›
Username: ‹user›⏎Password: ‹!pw›
login: ‹user› / password: ‹!pw›
␛[36m‹K›␛[0m=␛[33m‹!any›␛[0m
set ‹U›=‹!any›
$‹k› = '‹!any›';
$Env:‹U› = '‹!any›'
#define ‹U› "‹!any›"
‹K› = "‹!w5›\"‹!w6›"
‹k› = '‹!w5›\'‹!w6›'
requests.get(url, auth=("‹user›", "‹!pw›"))
HTTPBasicAuth('‹user›', '‹!pw›')
smtp.login("‹user›@example.com", "‹!pw›")
$secure = ConvertTo-SecureString "‹!pw›" -AsPlainText -Force
grant_type=password&username=‹user›&password=‹!pw›&client_secret=‹!tok›
os.environ.setdefault("‹U›", "‹!any›")
process.env['‹U›'] = '‹!any›'
System.setProperty("‹K›", "‹!any›");
os.Setenv("‹U›", "‹!any›")
options.‹k›="‹!any›"
"‹K›"="‹!any›"
‹k›=‹!any›, retries=3
(‹k›=‹!any›)
[‹k›: ‹!any›]
api_key=sk-‹!w6›
{'user': '‹user›', '‹k›': '‹!qany›', 'port': 5432}
Config(host='‹host›', user='‹user›', ‹k›='‹!any›')
{Host:‹host› User:‹user› Password:‹!any› Port:5432}
Settings { host: "‹host›", ‹k›: "‹!any›", port: 5432 }
{ user: '‹user›', ‹k›: '‹!any›', port: 5432 }
{"user"=>"‹user›", "‹k›"=>"‹!any›"}
['user' => '‹user›', '‹k›' => '‹!any›']
<‹k›>‹!any›</‹k›>
<input type="password" name="‹k›" value="‹!pw›">
| ‹k› | `‹!any›` |
"‹k›","‹!any›"
[req 8f2] POST /login {"user":"‹user›","password":"‹!qany›"} 200
DEBUG ‹name›: ‹k› -> ‹!tok›
new ‹k›: ‹!any› (was reset)
""",
    "env": r"""
‹U›=‹!any›
‹U›="‹!qany›"
‹U›='‹!qany›'
export ‹U›=‹!any›
export ‹U›="‹!qany›"; ./run.sh
‹U›=‹!any› python manage.py migrate
APP_ENV=production⏎‹U›=‹!any›⏎LOG_LEVEL=info
# settings of ‹name›⏎‹U›=‹!any› # do not commit
ENV ‹U›=‹!any›
ENV ‹U› ‹!any›
ARG ‹U›=‹!any›
Environment="‹U›=‹!any›"
docker run -d --name ‹name› -e ‹U›=‹!any› -e TZ=UTC postgres:16
      - ‹U›=‹!any›
heroku config:set ‹U›=‹!any› -a ‹name›
setenv ‹U› ‹!any›
""",
    "yaml": r"""
‹k›: ‹!any›
‹k›: "‹!qany›"
‹k›: '‹!qany›'
  ‹k›: ‹!any›  # rotate in May
database:⏎  host: ‹host›⏎  user: ‹user›⏎  ‹k›: ‹!any›⏎  pool: 5
services:⏎  db:⏎    environment:⏎      ‹U›: ‹!any›
- ‹k›: ‹!any›
‹k›: >-⏎  ‹!tok›
‹k›: |⏎  ‹!tok›
env:⏎  - name: ‹U›⏎    value: "‹!any›"
stringData:⏎  ‹k›: ‹!any›
apiVersion: v1⏎kind: Secret⏎metadata:⏎  name: ‹name›⏎data:⏎  ‹k›: ‹!kpw›
{host: ‹host›, ‹k›: ‹!any›, port: 5432}
+  ‹k›: ‹!any›
""",
    "cli": r"""
‹name› login --user ‹user› --password ‹!pw›
‹name› login --user ‹user› --password=‹!pw›
‹name› --password "‹!qpw›" --verbose
‹name› sync --token ‹!tok› --all
‹name› sync --token=‹!tok›
‹name› deploy --api-key ‹!tok› --region eu-west-1
‹name› --api-key=‹!tok› list
‹name› --secret-key '‹!tok›' push
mysql -u ‹user› -p‹!pw› ‹name› -e "select 1"
mysql -h ‹host› -u root --password='‹!qpw›' ‹name›
mysqldump -u‹user› -p'‹!qpw›' ‹name› > dump.sql
sshpass -p ‹!pw› ssh ‹user›@‹host›
sshpass -p '‹!qpw›' scp a.txt ‹user›@‹host›:/tmp
curl -u ‹user›:‹!pw› https://‹host›/status
curl --user "‹user›:‹!qpw›" https://‹host›/status
curl -X POST https://‹host›/login -d "username=‹user›&password=‹!pw›"
curl -d '{"user": "‹user›", "password": "‹!pw›"}' https://‹host›/login
aws configure set aws_secret_access_key ‹!B40›
redis-cli -h ‹host› -a ‹!pw› ping
docker login -u ‹user› -p ‹!pw› registry.example.com
PGPASSWORD=‹!pw› psql -h ‹host› -U ‹user› ‹name›
net user ‹user› ‹!pw› /add
‹name› -u ‹user› --pass ‹!pw›
‹name› --access-token "‹!tok›" whoami
‹name› --client-secret=‹!tok› --client-id ‹uuid›
twine upload -u __token__ -p ‹!tok› dist/*
npm config set //registry.npmjs.org/:_authToken ‹!tok›
git config --global user.password "‹!pw›"
az storage blob list --account-key ‹!B86›== --account-name ‹name›
openssl enc -aes-256-cbc -k ‹!pw› -in a -out b
openssl rsa -in key.pem -passin pass:‹!pw›
echo "‹!pw›" | docker login --username ‹user› --password-stdin
kubectl create secret generic ‹name› --from-literal=password=‹!pw›
gh auth login --with-token <<< "‹!tok›"
""",
    "header": r"""
Authorization: Bearer ‹!tok›
authorization: bearer ‹!tok›
Authorization: Basic ‹!basic›
Authorization: Token ‹!tok›
Proxy-Authorization: Basic ‹!basic›
X-Api-Key: ‹!tok›
api-key: ‹!tok›
X-Auth-Token: ‹!tok›
X-Amz-Security-Token: ‹!B200›==
GET /v1/me HTTP/1.1⏎Host: ‹host›⏎Authorization: Bearer ‹!tok›⏎Accept: */*
> Authorization: Bearer ‹!tok›
curl https://‹host›/me -H "Authorization: Bearer ‹!tok›" -H "Accept: application/json"
curl -H 'X-API-Key: ‹!tok›' https://‹host›/items
headers = {"Authorization": "Bearer ‹!tok›", "Accept": "application/json"}
headers={"X-Api-Key": "‹!tok›"}
fetch(url, { headers: { Authorization: `Bearer ‹!tok›` } })
req.Header.Set("Authorization", "Bearer ‹!tok›")
{"headers": {"authorization": "Bearer ‹!tok›", "accept": "*/*"}}
Authorization: AWS4-HMAC-SHA256 Credential=AKIA‹r16›/20240501/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=‹!h64›
""",
    "url": r"""
postgres://‹user›:‹!pw›@‹host›:5432/‹name›
postgresql+psycopg://‹user›:‹!uany›@‹host›/‹name›?sslmode=require
mysql://‹user›:‹!pw›@‹host›:3306/‹name›
redis://:‹!pw›@‹host›:6379/0
rediss://default:‹!utok›@‹host›:6380
mongodb+srv://‹user›:‹!pw›@cluster0.ab1cd.mongodb.net/‹name›?retryWrites=true
amqp://‹user›:‹!pw›@‹host›:5672/vhost
https://‹user›:‹!uany›@‹host›/path
git clone https://‹user›:‹!utok›@github.com/acme/‹name›.git
origin⇥https://oauth2:‹!utok›@gitlab.com/acme/‹name›.git (fetch)
ftp://‹user›:‹!pw›@‹host›/pub
http://‹user›:‹!pw›@proxy.example.com:3128
DATABASE_URL=postgres://‹user›:‹!pw›@‹host›:5432/‹name›
"dsn": "mysql://‹user›:‹!pw›@‹host›/‹name›",
smtp://‹user›%40example.com:‹!pw›@‹host›:587
connecting to postgres://‹user›:‹!pw›%21@‹host›/‹name› failed: timeout
https://‹host›/cb?code=1&access_token=‹!utok›&state=x
https://‹host›/api?api_key=‹!utok›
https://acct.blob.core.windows.net/c/b.zip?sv=2022-11-02&se=2025-01-01&sr=b&sp=r&sig=‹!B42›%3D
https://bucket.s3.amazonaws.com/f?X-Amz-Expires=3600&X-Amz-Signature=‹!h64›
https://‹user›:‹!utok›@‹host›:8443/a/b?c=d#e
fatal: unable to access 'https://‹user›:‹!utok›@github.com/acme/‹name›.git/': 403
"url": "https://‹user›:‹!pw›@‹host›/v1",
[‹name›](https://‹user›:‹!pw›@‹host›/)
mqtt://‹user›:‹!pw›@‹host›:1883
ldap://cn=admin:‹!pw›@‹host›:389
https://:‹!utok›@‹host›/
https://‹!utok›:x-oauth-basic@github.com/acme/‹name›.git
""",
    "dsn": r"""
Server=‹host›;Database=‹name›;User Id=‹user›;Password=‹!any›;Encrypt=True;
Data Source=‹host›;Initial Catalog=‹name›;User ID=‹user›;Pwd=‹!any›
host=‹host› port=5432 dbname=‹name› user=‹user› password=‹!any› sslmode=require
jdbc:postgresql://‹host›:5432/‹name›?user=‹user›&password=‹!any›
jdbc:sqlserver://‹host›:1433;databaseName=‹name›;user=‹user›;password=‹!any›;
DefaultEndpointsProtocol=https;AccountName=‹name›;AccountKey=‹!B86›==;EndpointSuffix=core.windows.net
Endpoint=sb://‹name›.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=‹!B43›=
psycopg2.connect("host=‹host› user=‹user› password=‹!pw› dbname=‹name›")
DSN='host=‹host› password=‹!pw› user=‹user›'
‹host›:5432:‹name›:‹user›:‹!pw›
machine ‹host› login ‹user› password ‹!any›
machine ‹host›⏎  login ‹user›⏎  password ‹!any›
//registry.npmjs.org/:_authToken=‹!uuid›
//npm.pkg.example.com/:_password="‹!kpw›"
""",
    "pem": r"""
‹dash›BEGIN RSA PRIVATE KEY‹dash›⏎‹!pem›⏎‹dash›END RSA PRIVATE KEY‹dash›
‹dash›BEGIN PRIVATE KEY‹dash›⏎‹!pem›⏎‹dash›END PRIVATE KEY‹dash›
‹dash›BEGIN EC PRIVATE KEY‹dash›⏎‹!pem›⏎‹dash›END EC PRIVATE KEY‹dash›
‹dash›BEGIN OPENSSH PRIVATE KEY‹dash›⏎‹!pem›⏎‹dash›END OPENSSH PRIVATE KEY‹dash›
‹dash›BEGIN ENCRYPTED PRIVATE KEY‹dash›⏎‹!pem›⏎‹dash›END ENCRYPTED PRIVATE KEY‹dash›
‹dash›BEGIN RSA PRIVATE KEY‹dash›⏎Proc-Type: 4,ENCRYPTED⏎DEK-Info: AES-128-CBC,‹H32›⏎⏎‹!pem›⏎‹dash›END RSA PRIVATE KEY‹dash›
‹dash›BEGIN PGP PRIVATE KEY BLOCK‹dash›⏎Version: GnuPG v2⏎⏎‹!pem›⏎=‹w4›⏎‹dash›END PGP PRIVATE KEY BLOCK‹dash›
$ cat id_rsa⏎‹dash›BEGIN RSA PRIVATE KEY‹dash›⏎‹!pem›⏎‹dash›END RSA PRIVATE KEY‹dash›⏎$ ls
‹dash›BEGIN PRIVATE KEY‹dash›⏎‹!pem›
‹dash›BEGIN OPENSSH PRIVATE KEY‹dash›⏎‹!pem›⏎... [truncated]
tls:⏎  key: |⏎    ‹dash›BEGIN PRIVATE KEY‹dash›⏎    ‹!ipem›⏎    ‹dash›END PRIVATE KEY‹dash›⏎  port: 443
{"type": "service_account", "private_key": "‹dash›BEGIN PRIVATE KEY‹dash›\n‹!epem›\n‹dash›END PRIVATE KEY‹dash›\n", "client_email": "x@y.iam.gserviceaccount.com"}
KEY="‹dash›BEGIN RSA PRIVATE KEY‹dash›\n‹!epem›\n‹dash›END RSA PRIVATE KEY‹dash›"
key = '‹dash›BEGIN EC PRIVATE KEY‹dash› ‹!flatpem› ‹dash›END EC PRIVATE KEY‹dash›'
‹dash›BEGIN RSA PRIVATE KEY‹dash›⏎‹!crpem›⏎‹dash›END RSA PRIVATE KEY‹dash›
{"key": "‹dash›BEGIN RSA PRIVATE KEY‹dash›\r\n‹!epem›\r\n‹dash›END RSA PRIVATE KEY‹dash›"}
ssh-add - <<< "‹dash›BEGIN OPENSSH PRIVATE KEY‹dash›⏎‹!pem›⏎‹dash›END OPENSSH PRIVATE KEY‹dash›"
  12→‹dash›BEGIN EC PRIVATE KEY‹dash›⏎  13→‹!pem›⏎  14→‹dash›END EC PRIVATE KEY‹dash›
client-key-data: ‹!pemb›
‹dash›BEGIN PRIVATE KEY‹dash›⏎‹!B64›⏎‹!B50›
""",
    "cookie": r"""
Cookie: sessionid=‹!l32›; theme=dark
Set-Cookie: session=‹!b40›; Path=/; HttpOnly; Secure
Set-Cookie: connect.sid=s%3A‹!b32›.‹b43›; Path=/
Cookie: _ga=GA1.2.‹d9›.‹d10›; auth_token=‹!tok›
cookie: JSESSIONID=‹!H32›
curl -b "sessionid=‹!l32›" https://‹host›/
curl --cookie 'PHPSESSID=‹!l26›' https://‹host›/
Cookie: session=‹!jwt›
Set-Cookie: refresh_token=‹!tok›; Max-Age=86400; HttpOnly
requests.get(url, cookies={"sessionid": "‹!l32›"})
< set-cookie: __Host-session=‹!b40›; path=/; secure
document.cookie = "token=‹!tok›";
""",
    "sql": r"""
CREATE USER '‹user›'@'%' IDENTIFIED BY '‹!qany›';
ALTER USER ‹user› WITH PASSWORD '‹!qany›';
CREATE ROLE ‹user› LOGIN PASSWORD '‹!any›';
create user ‹user› with encrypted password '‹!any›'
SET PASSWORD FOR '‹user›'@'localhost' = '‹!any›';
GRANT ALL ON ‹name›.* TO '‹user›'@'%' IDENTIFIED BY "‹!any›";
UPDATE users SET password = '‹!any›' WHERE id = ‹d3›;
UPDATE users SET api_key='‹!tok›' WHERE name='‹user›';
CREATE LOGIN ‹user› WITH PASSWORD = '‹!any›', DEFAULT_DATABASE = ‹name›
SELECT dblink_connect('host=‹host› user=‹user› password=‹!pw›')
INSERT INTO api_keys (owner, token) VALUES ('‹user›', '‹!tok›');
ALTER USER ‹user› IDENTIFIED BY "‹!any›";
mysql> SET PASSWORD = PASSWORD('‹!pw›');
CREATE USER ‹user› WITH PASSWORD '‹!w5›''‹!w5›';
""",
    "file": r"""
[default]⏎aws_access_key_id = ‹!AKIA›⏎aws_secret_access_key = ‹!B40›⏎region = eu-west-1
services:⏎  db:⏎    image: postgres:16⏎    environment:⏎      POSTGRES_USER: ‹user›⏎      POSTGRES_PASSWORD: ‹!pw›⏎  web:⏎    environment:⏎      - SECRET_KEY=‹!tok›⏎      - DATABASE_URL=postgres://‹user›:‹!pw›@db/‹name›
resource "aws_db_instance" "main" {⏎  engine   = "postgres"⏎  username = "‹user›"⏎  password = "‹!pw›"⏎}
<server>⏎  <id>releases</id>⏎  <username>‹user›</username>⏎  <password>‹!pw›</password>⏎</server>
users:⏎- name: ‹user›⏎  user:⏎    token: ‹!tok›
https://‹user›:‹!tok›@github.com⏎https://‹user›:‹!tok›@gitlab.com
development:⏎  adapter: mysql2⏎  username: ‹user›⏎  password: <%= ENV["X"] %>⏎production:⏎  password: ‹!pw›
spring.datasource.url=jdbc:mysql://‹host›/‹name›⏎spring.datasource.username=‹user›⏎spring.datasource.password=‹!any›
[client]⏎user=‹user›⏎password="‹!qpw›"⏎host=‹host›
# Deploy notes⏎1. ssh to ‹host› as ‹user› (password: ‹!pw›)⏎2. run `export API_TOKEN=‹!tok›`⏎3. restart
""",
}

JSON_POSITIVE = r"""
{"‹K›": "‹!qany›"}
{"user": "‹user›", "‹K›": "‹!qany›", "active": true}
{"database": {"host": "‹host›", "port": 5432, "‹K›": "‹!qany›"}}
{"accounts": [{"name": "‹user›", "‹K›": "‹!any›"}, {"name": "other"}]}
{"‹K›": {"value": "‹!tok›"}, "kind": "x"}
{"name": "‹U›", "value": "‹!any›"}
{"request": {"url": "https://‹host›/x", "headers": {"Authorization": "Bearer ‹!tok›", "User-Agent": "cli/1.0"}}}
{"request": {"headers": [{"name": "Cookie", "value": "sid=‹!l32›"}]}}
{"command": "curl -u ‹user›:‹!pw› https://‹host›/", "timeout": 30}
{"command": ["mysql", "-u", "‹user›", "-p‹!pw›", "‹name›"]}
{"content": "‹K›=‹!any›\nLOG=info", "path": ".env"}
{"dsn": "postgres://‹user›:‹!pw›@‹host›/‹name›"}
{"role": "tool", "tool_call_id": "call_‹w24›", "content": "export ‹U›=‹!any›"}
{"args": ["--password", "‹!pw›", "--verbose"]}
{"‹K›": ["‹!tok›", "‹!tok›"]}
{"body": "username=‹user›&password=‹!pw›", "method": "POST"}
{"file_path": "/app/.env", "content": "PORT=80\n‹U›=‹!any›\nDEBUG=0\n"}
{"stdout": "{\"‹K›\": \"‹!tok›\"}", "exit_code": 0}
{"old_string": "‹k› = \"‹!any›\"", "new_string": "‹k› = os.environ['X']"}
"""

# Texts without a secret, by family
NEGATIVE = {
    "code": r"""
password = getpass.getpass()
password = input("Password: ")
if password == confirm:
if not password or len(password) < 8:
def set_password(self, password: str) -> None:
def login(username: str, password: str, token: str | None = None) -> Session:
password: str | None = None
password: Optional[str] = Field(default=None, min_length=8)
api_key: str = Field(..., description="The key for ‹name›")
const token = await getToken();
const { password, ...rest } = user;
token = request.headers.get("Authorization")
token = secrets.token_urlsafe(32)
token := r.Header.Get("X-Api-Key")
password := os.Getenv("DB_PASSWORD")
api_key = os.environ["API_KEY"]
api_key=os.getenv("OPENAI_API_KEY")
const apiKey = process.env.API_KEY;
apiKey: process.env.‹NAME›_API_KEY,
client = OpenAI(api_key=settings.openai_api_key)
client = Client(token=token, secret=self.secret)
self.password = password
this.accessToken = accessToken;
hashed_password = bcrypt.hashpw(password.encode(), bcrypt.gensalt())
user.password = make_password(form.cleaned_data["password"])
return verify_password(plain_password, user.hashed_password)
raise ValueError("password must not be empty")
logger.info("token refreshed for user %s", user.id)
class TokenType(Enum):⏎    ACCESS = "access"⏎    REFRESH = "refresh"
PASSWORD_RESET = "password_reset"
TOKEN_URL = "/oauth/token"
private final String password;
public String getPassword() { return password; }
type Credentials struct {⏎⇥Username string⏎⇥Password string `json:"password"`⏎}
let token: String = config.token.clone();
pub struct Auth { token: Option<String>, secret: SecretString }
interface Props { password: string; token?: string }
password VARCHAR(255) NOT NULL,
password_hash CHAR(60),
SELECT id, password FROM users WHERE token = $1
t.string "password_digest", null: false
for token in tokens:
token = lexer.next_token()
Token(type=NAME, value='x', line=‹d2›)
while (token !== null && token.type !== "EOF") {
tokens = tokenizer.encode(text)
max_tokens=‹d4›
max_tokens: ‹d4›
token_count = ‹d5›
secret = hmac.new(key, msg, hashlib.sha256).hexdigest()
key = lambda item: item.name
sorted(rows, key=itemgetter(1))
primary_key=True
primary_key = id
sort_key: name
foreign_key: user_id
key="value"
event.key === "Enter"
"key": "ArrowDown"
partition_key = "tenant_id"
def test_password_is_hashed(client, token):
assert response.json()["token"]
expect(wrapper.find('input[name="password"]').exists()).toBe(true)
<input type="password" name="password" id="password" placeholder="Password">
<input type="hidden" name="csrf_token" value="{{ csrf_token() }}">
<label for="password">Password</label>
:root { --color-token-primary: #‹h6›; }
re.compile(r"password\s*[=:]\s*(\S+)")
/(?:api[_-]?key|secret|token)["']?\s*[:=]/i
PATTERN = r"sk-[A-Za-z0-9]{20,}"
r'ghp_[0-9a-zA-Z]{36}'
auth = (username, password)
requests.get(url, auth=(user, password), headers={"Authorization": f"Bearer {token}"})
headers: { Authorization: `Bearer ${token}` },
"Authorization: Bearer " + token
password=$(cat /run/secrets/db_password)
PASSWORD=$(openssl rand -base64 32)
read -s -p "Password: " password
echo "Usage: $0 --token TOKEN --password PASSWORD"
parser.add_argument("--password", help="the password", required=True)
@click.option("--api-key", envvar="API_KEY", help="API key")
secrets: inherit
password=None
token = null;
token: undefined
password = ""
API_KEY=
token: true
secret: false
token = tokens[i]
token=token,
password=password,
api_key=api_key, base_url=base_url
secret=secret_manager.get("db")
"token": token,
"password": user.password,
password: this.form.password,
apiKey: config.apiKey,
const secret = Buffer.from(key, "hex");
token = match.group(1)
token = next(iter(tokens), None)
token = data["access_token"]
access_token = response.json().get("access_token")
let password = std::env::var("DB_PASSWORD").unwrap();
String token = request.getHeader("Authorization").substring(7);
String password = System.getenv("DB_PASSWORD");
$password = $_POST['password'];
$token = bin2hex(random_bytes(32));
@app.route("/reset-password/<token>")
path("password/reset/<uidb64>/<token>/", views.reset)
password_validator: PasswordValidator = PasswordValidator()
def token(self) -> str:
case token.STRING:
switch (token.type) {
key: Optional[str] = None
secret_name: str
private_key_path: Path
cookie_name = "sessionid"
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_NAME = "csrftoken"
AUTH_PASSWORD_VALIDATORS = [
passwordField.sendKeys(password);
cy.get('#password').type(Cypress.env('password'))
expect(token).toBeDefined()
assert "password" not in response.text
mock_token = Mock(spec=Token)
if (!apiKey) throw new Error("API key missing");
print(f"token: {token}")
console.log(`password: ${password}`);
log.Printf("token=%s", token)
"tokens_per_minute": ‹d5›
tokenizer: cl100k_base
num_tokens = len(enc.encode(text))
pad_token_id=‹d3›, eos_token_id=2
special_tokens_map = {"bos_token": "<s>", "eos_token": "</s>"}
unk_token="[UNK]"
key_func=lambda k: k.lower()
hotkey: "ctrl+shift+p"
max_results=max_results, next_token=next_token
api_key=api_key or self.api_key,
headers={"Authorization": f"Bearer {api_key}"},
message: str = "Invalid Token: 'Invalid token'"
"input_token": "marker",
CHALLENGE_PASSWORD: "challengePassword",
"fortune_cookie": "🥠",
""",
    "reference": r"""
password: ${DB_PASSWORD}
password: "${DB_PASSWORD:-}"
DB_PASSWORD=$DB_PASSWORD
POSTGRES_PASSWORD: {{ vault_password }}
token: ${{ secrets.GITHUB_TOKEN }}
password: !vault
apiKey: <your-api-key>
API_KEY=your-api-key
OPENAI_API_KEY=sk-...
OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxx
export GITHUB_TOKEN=YOUR_TOKEN_HERE
token = "YOUR_ACCESS_TOKEN"
password: "********"
password=xxxxxx
secret: <redacted>
api_key=<REDACTED>
"api_key": "[REDACTED]"
token: [hidden]
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
Authorization: Bearer YOUR_API_KEY
curl -H "Authorization: Bearer ${ACCESS_TOKEN}" https://‹host›/me
postgres://user:password@localhost:5432/mydb
postgres://${DB_USER}:${DB_PASS}@‹host›/‹name›
https://<user>:<password>@‹host›/
mysql -u root -p ‹name›
mysql -u root -p
password_file: /run/secrets/db_password
passwordSecretRef: ‹name›-credentials
secretName: ‹name›-tls
valueFrom:⏎  secretKeyRef:⏎    name: ‹name›⏎    key: password
password = var.db_password
password = data.vault_generic_secret.db.data["password"]
private_key = file("~/.ssh/id_rsa")
ssh_private_key_path: ~/.ssh/id_ed25519
token_url: https://‹host›/oauth/token
"password": "changeme"
AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE
%DB_PASSWORD%
password: op://vault/‹name›/password
AWS_PROFILE=‹name›
token: ""
DB_PASSWORD=
export API_KEY=...
api_key = "your_api_key_here"
api_key="<API_KEY>"
password: "${{ secrets.DB_PASSWORD }}"
password: ${file(./secrets.json):password}
password: {{ lookup('env', 'DB_PASSWORD') }}
password: <%= ENV["DB_PASSWORD"] %>
- secret_key: REDACTED
token=***
Cookie: session=<session-id>
--token $TOKEN
--api-key "$API_KEY"
curl -u "$USER:$PASS" https://‹host›/
curl -u <user>:<password> https://‹host›/
export GITHUB_TOKEN=$(gh auth token)
TOKEN=`cat token.txt`
sk-ant-...
ghp_...
AKIA...
"api_key": "sk-your-key-here"
secretKeyRef: {name: ‹name›, key: password}
password=SecretStr('**********')
password: ••••••••
token: (unset)
api_key = None  # set by the caller
token=<Token object at 0x‹h12›>
password: [FILTERED]
"Authorization": "Bearer ***"
secret = config.get("secret")
existingSecret: ‹name›-db
tokenSecretRef:⏎  name: ‹name›
""",
    "prose": r"""
The API key is read from OPENAI_API_KEY.
Please enter your password to continue.
Password is required
I forgot my password: how can I reset it?
The token expired, so the client asked for a new one.
Password: must be at least 8 characters, with one digit.
Tokens used: ‹d2›,‹d3› of 128,000
tokens: ‹d5›
The secret to good code is small functions.
He is the key author: Token Ring and Ethernet were compared.
Our cookie policy: we use cookies to remember your session.
Set `password` in the form and press Enter.
- `token` (string, required): the access token
| password | string | The user's password |
**api_key**: your key from the dashboard
Each session has a token, a secret and an expiry date.
Password reset email sent to ‹user›@example.com
Incorrect password for user ‹user›
fatal: Authentication failed for 'https://github.com/acme/‹name›.git/'
Permission denied (publickey,password).
sudo: a password is required
"password": "Passwort"
"token.expired": "Your token has expired"
"passwordRequired": "Password is required"
password: Passwort
Key: value pairs are separated by commas.
The key is that tokens are counted before the call.
Bearer tokens are sent in the Authorization header.
Author: Alice <alice@example.com>
The pass rate was 98.‹d1› %, secret scanning found nothing.
Use --password to pass a password, or --token for a token.
Basic authentication is not supported.
Accepted password for ‹user› from 10.0.0.‹d2› port ‹d5› ssh2
Failed password for invalid user ‹user› from 10.1.2.3
INFO: token validation took ‹d2› ms
The password field is cleared after three attempts.
Reset token sent, check your inbox.
Do not commit secrets; use environment variables.
Which API key should I use, the test key or the live key?
I'll add a `secret` parameter to the `connect` function.
Access token: expires in ‹d4› seconds
Refresh token rotation is enabled by default.
Note: credentials are read from ~/.aws/credentials
## Authentication⏎⏎Pass the token in the `Authorization` header.
Step 3: paste the key and click Save.
Username and password do not match our records.
It's a secret: nobody knows.
password manager, token bucket, secret santa, key signature
""",
    "ids": r"""
commit ‹h40›
‹h7› Fix the parser
index ‹h7›..‹h7› 100644
HEAD is now at ‹h40›
sha256:‹h64›
image: nginx@sha256:‹h64›
md5: ‹h32›
"integrity": "sha512-‹B86›=="
    sha256 = "‹h64›";
hash = "sha256:‹h64›"
    --hash=sha256:‹h64› \
github.com/acme/‹name› v1.2.‹d1› h1:‹B43›=
checksum = "‹h64›"
resolved "https://registry.npmjs.org/‹name›/-/‹name›-1.0.‹d1›.tgz#‹h40›"
id: ‹uuid›
request_id=‹uuid›
"trace_id": "‹h32›", "span_id": "‹h16›"
traceparent: 00-‹h32›-‹h16›-01
ETag: "‹h32›"
"etag": "W/\"‹h32›\""
‹ulid›
order ‹ulid› shipped
"id": "call_‹w24›"
"tool_call_id": "call_‹w24›"
"id": "toolu_01‹w22›"
toolu_01‹w22›
msg_01‹w22›
resp_‹h48›
fc_‹h48›
rs_‹h48›
chatcmpl-‹w29›
run_‹w24› in thread_‹w24›
asst_‹w24›
file-‹w24›
req_011C‹w20›
msg_‹h48›
build ‹d8› of ‹h12›
nanoid: ‹b21›
"next_page_token": "CAUQ‹w4›"
arn:aws:secretsmanager:eu-west-1:‹d12›:secret:‹name›-‹w6›
"Resource": "arn:aws:secretsmanager:*:*:secret:‹name›-*"
"AWS::IAM::AccessKey": "‹h16›",
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAB‹B300› ‹user›@laptop
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI‹B43› ‹user›@laptop
‹dash›BEGIN CERTIFICATE‹dash›⏎‹certbody›⏎‹dash›END CERTIFICATE‹dash›
‹dash›BEGIN PUBLIC KEY‹dash›⏎‹certbody›⏎‹dash›END PUBLIC KEY‹dash›
<img src="data:image/png;base64,iVBORw0KGgo‹B200›==">
SHA256:‹B43› ‹user›@laptop (ED25519)
MD5 (dist.zip) = ‹h32›
"session_id": "‹uuid›"
conversation_id: ‹uuid›
arn:aws:iam::‹d12›:role/‹name›
cache-key: ‹h64›
docker.io/library/‹name›@sha256:‹h64›
container ‹h12› started
0x‹h40›
kid: ‹h40›
pk_live_‹w24›
version_id=‹w32›
diff --git a/‹h7› b/‹h7›
From ‹h40› Mon Sep 17 00:00:00 2001
* ‹h7› (HEAD -> main) Add token refresh
Digest: sha256:‹h64›
Successfully built ‹h12›
layer ‹h12›: Pull complete
"@types/node@^20":⏎  version "20.1.‹d1›"⏎  integrity sha512-‹B86›==
/x@1.0.‹d1›:⏎    resolution: {integrity: sha512-‹B86›==}
name = "serde"⏎version = "1.0.‹d3›"⏎checksum = "‹h64›"
files = [⏎    {file = "x-1.0-py3-none-any.whl", hash = "sha256:‹h64›"},⏎]
golang.org/x/crypto v0.‹d2›.0/go.mod h1:‹B43›=
"dist": {"shasum": "‹h40›"}
sha512-‹B86›==
"_id": ObjectId("‹h24›")
"_id": "‹h24›"
eventId=‹uuid› parentId=‹uuid›
x-request-id: ‹uuid›
cf-ray: ‹h16›-FRA
X-Trace-Id: ‹h32›
span=‹h16› trace=‹h32›
transaction ‹h64› confirmed
pod/‹name›-‹h10›-‹l5›   1/1     Running
ami-0‹h16›
sg-‹h17›
"checksum": "‹h32›"
fingerprint=‹H2›:‹H2›:‹H2›:‹H2›:‹H2›:‹H2›:‹H2›:‹H2›
"id": "chatcmpl-‹w29›", "object": "chat.completion"
"system_fingerprint": "fp_‹h10›"
step_‹w24›
"id": "rs_‹h48›", "summary": []
call_id=call_‹w24› name=read_file
<tool_use_id>toolu_01‹w22›</tool_use_id>
[call_‹w24›] ok
main.‹h8›.js
chunk-‹u8›.css
‹name›-‹h20›.tar.gz
/tmp/‹name›.‹w6›/out
"sessionId":"‹uuid›"
task-‹uuid›
disk-‹l20›
mask-‹w8›-risk-‹w8›
"taskId": "task_‹l24›"
"uuid":"‹uuid›","parentUuid":"‹uuid›"
""",
    "ordinary": r"""
https://user@‹host›/path
git@github.com:acme/‹name›.git
ssh://git@github.com/acme/‹name›.git
https://‹host›/docs/authentication#tokens
https://‹host›/search?q=password+reset&page=2
‹user›@example.com
/home/‹user›/.ssh/config
model: gpt-4o-2024-08-06
"model": "claude-sonnet-4-20250514"
‹name›==2.‹d1›.‹d2›
color: #‹h6›;
02:42:ac:‹d2›:00:‹d2›
2024-05-0‹d1›T10:00:00.‹d3›Z
+49 30 ‹d7›
52.‹d4›, 13.‹d4›
host=‹host› port=5432 dbname=‹name› user=‹user›
jdbc:postgresql://‹host›:5432/‹name›
redis://‹host›:6379/0
mongodb://‹host›:27017/‹name›
%E4%BD%A0%E5%A5%BD%20world%20‹word›
function(e,t,n){"use strict";var r=n(‹d3›),o=t.key||e.token;return r(o)}
␛[32mPASS␛[0m tests/test_auth.py::test_token
Traceback (most recent call last):⏎  File "auth.py", line ‹d2›, in check_password⏎    raise InvalidToken(token)⏎InvalidToken: token expired
drwxr-xr-x  2 ‹user› staff  64 May  ‹d1› 10:00 secrets
-rw-------  1 root root 1679 .ssh/id_rsa
Content-Type: application/json; charset=utf-8
Accept-Encoding: gzip, deflate
Set-Cookie: theme=dark; Path=/
Cookie: lang=en
Access-Control-Allow-Headers: Authorization, X-Api-Key
WWW-Authenticate: Bearer realm="api"
Server=‹host›;Database=‹name›;Trusted_Connection=True;
export PATH=$HOME/bin:$PATH
EDITOR=vim
export NODE_ENV=production
kubectl get secrets -n ‹name›
‹name›-token-‹l5›   kubernetes.io/service-account-token   3      ‹d2›d
CREATE USER ‹user›;
GRANT SELECT ON ‹name› TO ‹user›;
    at Object.getToken (/app/auth.js:‹d2›:‹d2›)
https://github.com/acme/‹name›/commit/‹h40›
https://‹host›/items?page_token=2&sort_key=name
https://‹host›/‹uuid›/edit?key=title
http://localhost:8080/health
ws://‹host›:9000/socket
ftp://‹host›/pub/file.tar.gz
C:\Users\‹user›\AppData\Local\Temp
ping -c 3 ‹host›
ls -la ~/.ssh
cat /etc/passwd
grep -rn "password" src/ --include=*.py
sed -i 's/password/passphrase/g' README.md
chmod 600 ~/.ssh/id_rsa
pip install python-jose passlib keyring
tar -czf secrets.tar.gz secrets/
docker run -p 5432:5432 -e TZ=UTC postgres:16
mkdir -p build && cp -p a b
ssh -p 2222 ‹user›@‹host›
npm run test -- --token-limit 4096
SELECT * FROM tokens WHERE user_id = ‹d3›;
ALTER TABLE users ADD COLUMN password TEXT;
CREATE INDEX idx_tokens_key ON tokens (key);
{"level":"info","msg":"token ok","user":"‹user›","ms":‹d2›}
key1=value1&key2=value2
lang=en; theme=dark
a=1, b=2, key=3
user=‹user› action=login result=ok
""",
}

JSON_NEGATIVE = r"""
{"usage": {"prompt_tokens": 120, "completion_tokens": 48, "total_tokens": 168}}
{"max_tokens": 4096, "temperature": 0}
{"password": null, "token": ""}
{"password": true, "has_token": false, "token_count": 12}
{"type": "object", "properties": {"password": {"type": "string", "description": "The password"}, "api_key": {"type": "string"}}, "required": ["password"]}
{"role": "assistant", "tool_calls": [{"id": "call_‹w24›", "type": "function", "function": {"name": "get_token", "arguments": "{\"user\": \"‹user›\"}"}}]}
{"role": "tool", "tool_call_id": "toolu_01‹w22›", "content": "ok"}
{"id": "resp_‹h48›", "object": "response", "output": [{"id": "msg_‹h48›", "type": "message"}]}
{"sha": "‹h40›", "digest": "sha256:‹h64›", "id": "‹uuid›"}
{"name": "‹name›", "version": "1.0.‹d1›", "dependencies": {"jsonwebtoken": "^9.0.2", "password-hash": "1.2.2"}}
{"labels": {"password": "Password", "token": "Token", "secret": "Secret question"}}
{"key": "name", "value": "‹user›", "sort_key": "created_at"}
{"env": {"API_KEY": "${API_KEY}", "DB_PASSWORD": "$DB_PASSWORD"}}
{"command": "grep -rn 'password' src/ | head -20", "description": "Find where password is used"}
{"file_path": "/app/src/auth/token.py", "old_string": "token = None", "new_string": "token = get_token()"}
{"pattern": "api_key|secret|token", "path": "src"}
{"integrity": "sha512-‹B86›==", "resolved": "https://registry.npmjs.org/x/-/x-1.0.0.tgz"}
{"session_id": "‹uuid›", "trace_id": "‹h32›", "cursor": "‹h24›"}
{"finish_reason": "stop", "usage": {"prompt_tokens_details": {"cached_tokens": 0}}, "token_usage": 12}
{"content": "def login(user, password):\n    token = create_token(user)\n    return token\n"}
{"todos": [{"content": "Rotate the API key", "status": "pending", "id": "1"}]}
{"query": "how to reset password", "page_token": null}
{"openapi": "3.0.0", "components": {"securitySchemes": {"ApiKeyAuth": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}}}
{"logprobs": [{"token": "Hello", "logprob": -0.3}, {"token": " world", "logprob": -0.1}]}
{"tokens": ["the", "quick", "fox"], "token": "fox"}
"""

# What a text stands in when an agent sees it
WRAPS = r"""
‹T›
‹T›
‹prose›⏎‹T›⏎‹prose›
‹path›:‹d2›:‹T›
```‹lang›⏎‹T›⏎```
@@ -1,3 +1,4 @@⏎+‹T›
‹prose›⏎⏎    ‹T›⏎
␛[2m10:04:1‹d1›␛[0m ‹T›
"""

DEV = Part(VENDORS, NAMED, BARE, KEYED, CUT, KEYS, POSITIVE, JSON_POSITIVE, NEGATIVE, JSON_NEGATIVE, WRAPS)
