"""The published shapes of vendors' keys, as a table."""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

from deputy.core.redaction.forms import Found

# A key does not start inside a word; the end of an escape (\n, \x3d, %3D, a terminal colour) is not part of a word,
# and in a URL of Telegram `bot` is before the key.
_KEY_START = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
    r"|(?<=%[0-9A-Fa-f]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m)|(?<=/bot))"
)

_ALNUM = "A-Za-z0-9"
_WORD = r"\w-"
_HEX = "a-f0-9"
_UPPER = "A-Z0-9"
_BASE64 = "A-Za-z0-9+/="


class Shape(Struct, frozen=True, gc=False):
    """One shape: a literal, the alphabet of what follows it, and how many such characters make it a key."""

    vendor: str
    literal: str
    alphabet: str
    least: int
    before: str = ""
    """A class of characters that stand before the literal and belong to the key."""
    before_length: int = 0
    rest: str = ""
    """A pattern of what follows, where alphabet and length are not enough; the key begins at its group `key`."""
    trigger: str = ""
    """A pattern of how it begins, where the literal alone is too frequent; at most 40 characters."""

    def find(self, text: str, at: int) -> Found | None:
        """The key whose literal is at this place, if it is one."""
        start = at - self.before_length
        if start < 0 or not text.startswith(self.literal, at):
            return None
        found = _pattern(self).match(text, start)
        return Found(found.start(found.lastgroup or 0), found.end(), f"[{self.alphabet}]*+") if found else None


@cache
def _pattern(shape: Shape) -> re.Pattern[str]:
    enough = f"(?=[{shape.alphabet}]{{{shape.least}}})" if shape.least else ""
    mixed = "" if shape.before or "key" in shape.rest else r"(?=[a-z_.+/=~|@-]{0,64}[0-9A-Z])"
    pattern = f"{_KEY_START}{shape.before}{re.escape(shape.literal)}{enough}{mixed}{shape.rest}"
    return re.compile(pattern, re.ASCII)


def _shapes(vendor: str, literals: str, alphabet: str, least: int) -> tuple[Shape, ...]:
    return tuple(Shape(vendor, literal, alphabet, least) for literal in literals.split())


SHAPES: tuple[Shape, ...] = (
    *_shapes("1Password", "ops_eyJ", _BASE64, 40),
    Shape("1Password", "A3-", r"A-Z0-9\-", 28, rest=r"[A-Z0-9]{6}-[A-Z0-9-]{11,12}-"),
    *_shapes("Adobe", "p8e-", _ALNUM, 32),
    *_shapes("age", "AGE-SECRET-KEY-1", _UPPER, 32),
    Shape("Airtable", "pat", r"A-Za-z0-9.", 60, rest=r"[A-Za-z0-9]{14}\.[a-f0-9]{40}", trigger=r"pat[A-Za-z0-9]{14}\."),
    *_shapes("Alibaba Cloud", "LTAI", _ALNUM, 16),
    *_shapes("Anthropic", "sk-ant-", _WORD, 16),
    *_shapes("Artifactory", "AKCp cmVmd", _ALNUM, 56),
    *_shapes("Atlassian", "ATATT3 ATCTT3 ATBB", r"\w=-", 20),
    *_shapes("AWS", "AKIA ASIA ABIA ACCA", _UPPER, 16),
    *_shapes("AWS", "ABSK bedrock-api-key-", _BASE64, 40),
    Shape("AWS", "aws_secret_access_key", _BASE64, 0, rest=r"[\"']?\s{0,8}[=:]\s{0,8}[\"']?(?P<key>[A-Za-z0-9/+]{40})"),
    Shape("Azure", "Q~", r"\w~.-", 31, before=r"[\w~.]{3}\d", before_length=4),
    *_shapes("Brevo", "xkeysib- xsmtpsib-", r"a-zA-Z0-9\-", 40),
    *_shapes("Cerebras", "csk-", _ALNUM, 32),
    *_shapes("ClickHouse", "4b1d", _ALNUM, 38),
    *_shapes("Clojars", "CLOJARS_", _ALNUM, 40),
    *_shapes("Cloudflare", "v1.0-", r"a-f0-9\-", 100),
    *_shapes("Cloudflare", "cfut_ cfat_ cfk_", _WORD, 32),
    *_shapes("Contentful", "CFPAT-", _WORD, 32),
    *_shapes("Databricks", "dapi", r"a-f0-9\-", 32),
    *_shapes("Datadog", "ddapp_ ddpat_", _ALNUM, 30),
    *_shapes("DigitalOcean", "dop_v1_ doo_v1_ dor_v1_", _HEX, 32),
    Shape("Discord", ".", _WORD, 0, r"[MNO][\w-]{23}", 24, r"[\w-]{6}\.[\w-]{27}", r"\.[\w-]{6}\.[\w-]{27}"),
    *_shapes("Discord", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"\w/-", 60),
    *_shapes("Docker", "dckr_pat_ dckr_oat_", _WORD, 16),
    Shape("Docker", '"auth"', _BASE64, 0, rest=r"\s{0,4}:\s{0,4}\"(?P<key>[A-Za-z0-9+/=]{8})"),
    *_shapes("Doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"\w.", 32),
    *_shapes("Dropbox", "sl.u. sl.B", _WORD, 60),
    *_shapes("Duffel", "duffel_test_ duffel_live_", r"\w=-", 32),
    *_shapes("Dynatrace", "dt0c01. dt0s01.", r"A-Z0-9.", 60),
    *_shapes("EasyPost", "EZAK EZTK", _ALNUM, 50),
    *_shapes("ElevenLabs", "sk_", _HEX, 40),
    *_shapes("Facebook", "EAAC EAAM EAAG", _ALNUM, 60),
    *_shapes("Figma", "figd_ figu_", _WORD, 20),
    *_shapes("Fireworks", "fw_", _ALNUM, 20),
    *_shapes("Flutterwave", "FLWSECK_TEST- FLWSECK-", r"A-Za-z0-9\-", 12),
    *_shapes("Fly", "fo1_", _WORD, 40),
    *_shapes("Fly", "fm1a_ fm1r_ fm2_", _BASE64, 40),
    *_shapes("Frame.io", "fio-u-", r"\w=-", 40),
    *_shapes("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", _ALNUM, 20),
    *_shapes("GitHub", "github_pat_", r"\w", 20),
    *_shapes("GitLab", "glpat- gldt- glrt- glrtr- gloas- glptt- glcbt- glft- glffct- glimt-", r"\w.-", 16),
    *_shapes("GitLab", "glagent- glsoat- GR1348941", r"\w.-", 16),
    *_shapes("Google", "AIza", _WORD, 30),
    *_shapes("Google", "ya29. GOCSPX- 1//0", _WORD, 20),
    *_shapes("Grafana", "glsa_", r"\w", 32),
    *_shapes("Grafana", "glc_ eyJrIjoi", _BASE64, 32),
    *_shapes("Groq", "gsk_", _ALNUM, 20),
    *_shapes("Harness", "pat. sat.", r"\w.-", 60),
    Shape("HashiCorp Terraform", ".atlasv1.", r"\w=-", 40, before="[A-Za-z0-9]{14}", before_length=14),
    *_shapes("HashiCorp Vault", "hvs. hvb. hvr.", _WORD, 20),
    Shape("Heroku", "HRKU-AA", _WORD, 40),
    *_shapes("HubSpot", "pat-na1- pat-eu1- pat-na2-", r"A-Fa-f0-9\-", 32),
    *_shapes("Hugging Face", "hf_ api_org_", _ALNUM, 30),
    *_shapes("Infracost", "ico-", _ALNUM, 32),
    *_shapes("Intercom", "dG9rOm", _BASE64, 30),
    *_shapes("LaunchDarkly", "sdk- api-", r"a-f0-9\-", 36),
    *_shapes("LangSmith", "lsv2_pt_ lsv2_sk_", r"a-f0-9_", 32),
    *_shapes("Langfuse", "sk-lf-", r"a-f0-9\-", 32),
    *_shapes("Linear", "lin_api_ lin_oauth_", _ALNUM, 32),
    Shape("Mailchimp", "-us", "0-9", 1, before="[a-f0-9]{32}", before_length=32, rest=r"[0-9]{1,2}(?![A-Za-z0-9])"),
    *_shapes("Mailgun", "key- pubkey-", _HEX, 32),
    *_shapes("Mapbox", "sk.eyJ", r"\w.-", 40),
    Shape("MaxMind", "_mmk", "0-9", 0, before="[A-Za-z0-9]{6}_[A-Za-z0-9]{29}", before_length=36),
    *_shapes("Meta Llama", "LLM|", r"0-9\w|-", 30),
    *_shapes("Microsoft Teams", ".webhook.office.com/webhookb2/", r"\w@/-", 60),
    *_shapes("Netlify", "nfp_", _ALNUM, 30),
    *_shapes("New Relic", "NRAK- NRJS- NRII- NRRA- NRAL-", r"\w-", 19),
    *_shapes("Notion", "ntn_ secret_", _ALNUM, 40),
    *_shapes("npm", "npm_", _ALNUM, 30),
    *_shapes("NuGet", "oy2", "a-z0-9", 43),
    *_shapes("NVIDIA", "nvapi-", _WORD, 32),
    *_shapes("Octopus", "API-", _UPPER, 26),
    *_shapes("OpenAI", "sk-proj- sk-svcacct- sk-admin-", _WORD, 16),
    *_shapes("OpenAI and compatible", "sk-", r"\w", 20),
    *_shapes("OpenRouter", "sk-or-v1-", _HEX, 32),
    *_shapes("OpenShift", "sha256~", _WORD, 40),
    *_shapes("Perplexity", "pplx-", _ALNUM, 32),
    *_shapes("Pinecone", "pcsk_", r"\w", 32),
    *_shapes("PlanetScale", "pscale_tkn_ pscale_oauth_ pscale_pw_", r"\w=.-", 32),
    *_shapes("PostHog", "phx_", _ALNUM, 32),
    *_shapes("Postman", "PMAK-", r"a-f0-9\-", 40),
    *_shapes("Prefect", "pnu_ pnb_", _ALNUM, 32),
    *_shapes("Pulumi", "pul-", _HEX, 32),
    *_shapes("PyPI", "pypi-Ag", _WORD, 40),
    *_shapes("Razorpay", "rzp_live_ rzp_test_", _ALNUM, 14),
    *_shapes("ReadMe", "rdme_", "a-z0-9", 40),
    *_shapes("Replicate", "r8_", _ALNUM, 30),
    Shape("Resend", "re_", r"\w", 30, trigger=r"re_\w{20}"),
    *_shapes("RubyGems", "rubygems_", _HEX, 32),
    *_shapes("Scalingo", "tk-us-", _WORD, 40),
    *_shapes("SendGrid", "SG.", r"\w=.-", 40),
    *_shapes("Sentry", "sntrys_", r"A-Za-z0-9+/=_", 40),
    *_shapes("Sentry", "sntryu_", _HEX, 40),
    *_shapes("Shippo", "shippo_live_ shippo_test_", _HEX, 32),
    *_shapes("Shopify", "shpat_ shpca_ shppa_ shpss_ shptka_", "A-Fa-f0-9", 30),
    *_shapes("Slack", "xoxb- xoxp- xoxa- xoxe- xoxo- xoxr- xoxs- xoxe.", r"A-Za-z0-9.\-", 16),
    *_shapes("Slack", "xapp-", r"A-Za-z0-9\-", 20),
    *_shapes("Slack", "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/", r"\w+/-", 30),
    *_shapes("Snyk", "snyk_uat. snyk_sat.", r"\w.-", 30),
    *_shapes("Sonar", "squ_ sqp_ sqa_", _HEX, 40),
    *_shapes("Sourcegraph", "sgp_", r"a-f0-9_", 40),
    *_shapes("Square", "sq0atp- sq0csp- EAAA", _WORD, 22),
    *_shapes("Stripe", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", _ALNUM, 10),
    *_shapes("Stripe and Svix", "whsec_", _BASE64, 24),
    *_shapes("Supabase", "sbp_ sbp_oauth_", _HEX, 32),
    *_shapes("Supabase", "sb_secret_", _WORD, 20),
    *_shapes("Tailscale", "tskey-", _WORD, 16),
    *_shapes("Tavily", "tvly-", _WORD, 16),
    *(Shape("Telegram", ":AA", _WORD, 32, before=f"[0-9]{{{n}}}", before_length=n) for n in range(6, 17)),
    *_shapes("Together", "tgp_v1_", _WORD, 32),
    Shape("Twilio", "SK", _HEX, 32, trigger="SK[a-f0-9]{32}"),
    *_shapes("Typeform", "tfp_", r"\w.=-", 40),
    *_shapes("Vercel", "vcp_ vci_ vca_ vcr_ vck_ vercel_blob_rw_", r"\w", 24),
    *_shapes("Weights & Biases", "wandb_v1_", r"\w", 32),
    *_shapes("xAI", "xai-", _ALNUM, 32),
    *_shapes("Yandex Cloud", "AQVN", _WORD, 32),
    Shape("JSON web token", "eyJ", r"\w.=-", 0, rest=r"[\w-]{10,320}\.[\w-]{10}"),
)
"""A key has a digit or a capital letter within its first 64 characters."""
