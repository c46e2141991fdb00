"""What vendors' sentences mean: one table of patterns for each. Data only.

A sentence counts only where typed codes (:mod:`router.health.vendor_codes`) and the status leave the cause
open, and only from its first character on: every pattern is matched, never searched. A prompt that an
error echoes stands behind the vendor's own words, so that it cannot be taken for them.

To add a vendor: put its recorded bodies into ``tests/router/health/data`` first, then a row here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from router.health.rulings import RulingName as R

__all__ = ["PATTERNS", "WRAPPERS", "VendorPattern"]

VendorPattern = tuple[frozenset[int], "re.Pattern[str]", R]

# What gateways write before the sentence of their upstream; taken off, at most four of them.
WRAPPERS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"HTTP \d{3}:? ",
        r"error code: \d{3} - ",
        r"(?:litellm\.)?\w{0,40}(?:Error|Exception)(?: - |: )",
        r"bad response status code \d{3},? message: ",
        r"(?:error from |upstream )provider[^:]{0,40}: ",
        r"(?:provider|upstream)(?: returned(?: an)?)? error[:,] ",
        r"status_code=\d{3}, ",
        r"\[[^\]]{0,40}\] ?",
        r"error: ",
    )
)

_REFUSED = frozenset({400, 402, 403, 404, 406, 409, 413, 422, 429})
_OPEN = _REFUSED | {401}
_TOO_LONG = frozenset({400, 413, 422, 429, 500})
_GONE = frozenset({400, 403, 404, 422, 500, 503})
_LIMITS = frozenset({400, 403, 429, 503})
_SERVER = frozenset({500, 503})


def _rows(statuses: frozenset[int], ruling: R, *patterns: str) -> tuple[VendorPattern, ...]:
    return tuple((statuses, re.compile(pattern, re.IGNORECASE), ruling) for pattern in patterns)


# Which statuses leave the cause open, the sentence's beginning, what it means. First match wins.
PATTERNS: Mapping[str, tuple[VendorPattern, ...]] = MappingProxyType(
    {
        "openai": (
            *_rows(_OPEN, R.NO_BALANCE, r"you exceeded your current quota", r"your account is not active"),
            *_rows(_LIMITS, R.CONTEXT_TOO_LONG, r"request too large for "),
            *_rows(
                _LIMITS,
                R.DAILY_QUOTA,
                r"rate limit reached for .{1,160}? on (?:requests|tokens) per day",
            ),
            *_rows(_LIMITS, R.RATE_LIMITED, r"rate limit reached for "),
            *_rows(
                _TOO_LONG,
                R.CONTEXT_TOO_LONG,
                r"(?:this|the) (?:model|endpoint)'s maximum context length is \d",
                r"your input exceeds the context window",
                r"input tokens exceed the configured limit",
            ),
            *_rows(
                _GONE,
                R.MODEL_NOT_FOUND,
                r"the model `?[^`\n]{1,120}?`? (?:does not exist|has been deprecated|is not supported)",
            ),
            *_rows(
                _OPEN,
                R.BAD_CREDENTIALS,
                r"incorrect api key provided",
                r"invalid (?:api key|api-key|token)\b",
            ),
            *_rows(_OPEN, R.REGION_REFUSED, r"country, region, or territory not supported"),
        ),
        "anthropic": (
            *_rows(
                _OPEN,
                R.NO_BALANCE,
                r"your credit balance is too low",
                r"you have reached your specified (?:api|workspace)? ?(?:api )?usage limits",
            ),
            *_rows(
                _TOO_LONG,
                R.CONTEXT_TOO_LONG,
                r"prompt is too long",
                r"input length and `?max_tokens`? exceed context limit",
                r"input is too long for requested model",
            ),
            *_rows(_OPEN, R.ACCOUNT_BLOCKED, r"this organization has been disabled"),
            *_rows(_OPEN, R.CONTENT_FILTERED, r"output blocked by content filtering policy"),
            *_rows(
                _LIMITS,
                R.RATE_LIMITED,
                r"this request would exceed your (?:account|organization)'s rate limit",
                r"number of request tokens has exceeded",
            ),
        ),
        "gemini": (
            *_rows(_OPEN, R.BAD_CREDENTIALS, r"api key (?:not valid|expired|not found)"),
            *_rows(_OPEN, R.REGION_REFUSED, r"user location is not supported"),
            *_rows(
                _TOO_LONG,
                R.CONTEXT_TOO_LONG,
                r"the input token count \(?\d+\)? exceeds the maximum",
                r"the input token count exceeds the maximum",
            ),
            *_rows(_GONE, R.MODEL_NOT_FOUND, r"models/[^\s]{1,80} is not found for api version"),
            *_rows(_OPEN, R.ACCOUNT_BLOCKED, r"permission denied: consumer .{1,80} has been suspended"),
        ),
        "openrouter": (
            *_rows(
                _OPEN,
                R.REQUEST_TOO_DEAR,
                r"this request requires more credits, or fewer max_tokens",
            ),
            *_rows(
                _OPEN,
                R.NO_BALANCE,
                r"insufficient credits",
                r"key limit exceeded",
                r"prompt tokens limit exceeded",
                r"your account or api key has insufficient credits",
            ),
            *_rows(_LIMITS, R.DAILY_QUOTA, r"rate limit exceeded: free-models-per-day"),
            *_rows(_LIMITS, R.RATE_LIMITED, r"rate limit exceeded"),
            *_rows(
                _LIMITS,
                R.MODEL_RATE_LIMITED,
                r"[\w./:\-]{1,100} is temporarily rate-limited upstream",
            ),
            *_rows(
                _OPEN,
                R.NOT_PERMITTED,
                r"no endpoints found matching your data policy",
                r"no allowed providers are available",
            ),
            *_rows(_OPEN, R.BAD_REQUEST, r"no endpoints found that (?:support|can handle)"),
            *_rows(
                _OPEN,
                R.MODEL_NOT_FOUND,
                r"no endpoints found for ",
                r"[\w./:\-]{1,100} is not a valid model id",
            ),
            *_rows(
                _OPEN,
                R.CONTENT_FILTERED,
                r"[\w./:\- ]{1,100} requires moderation on ",
                r"your input was flagged",
            ),
            *_rows(
                _OPEN,
                R.BAD_CREDENTIALS,
                r"no auth credentials found",
                r"no cookie auth credentials",
                r"user not found",
            ),
        ),
        "deepseek": (
            *_rows(_OPEN, R.NO_BALANCE, r"insufficient balance"),
            *_rows(_OPEN, R.BAD_CREDENTIALS, r"authentication fails"),
            *_rows(_GONE, R.MODEL_NOT_FOUND, r"model not exist"),
            *_rows(_OPEN, R.CONTENT_FILTERED, r"content exists risk"),
        ),
        "groq": (
            *_rows(_OPEN, R.ACCOUNT_BLOCKED, r"organization has been restricted"),
            *_rows(_TOO_LONG, R.CONTEXT_TOO_LONG, r"please reduce the length of the messages"),
        ),
        "cerebras": (
            *_rows(_LIMITS, R.DAILY_QUOTA, r"(?:tokens|requests) per day limit exceeded"),
            *_rows(
                _LIMITS,
                R.RATE_LIMITED,
                r"(?:tokens|requests) per (?:second|minute|hour) limit exceeded",
            ),
            *_rows(_LIMITS, R.MODEL_RATE_LIMITED, r"we're experiencing high traffic right now"),
            *_rows(_TOO_LONG, R.CONTEXT_TOO_LONG, r"please reduce the length of the messages or completion"),
        ),
        "zai": (
            *_rows(
                _OPEN,
                R.NO_BALANCE,
                r"(?:账户|账号|您的账户)?余额不足",
                r"insufficient balance or no resource package",
            ),
            *_rows(
                _LIMITS,
                R.PLAN_QUOTA,
                r"usage limit reached for ",
                r"weekly/monthly limit exhausted",
                r"已达到 ?\d+ ?小时的使用上限",
            ),
            *_rows(_LIMITS, R.MODEL_RATE_LIMITED, r"(?:该模型)?当前(?:api)?(?:请求|访问量)过[多大]"),
            *_rows(
                _LIMITS,
                R.RATE_LIMITED,
                r"(?:您的账户|您)?已达到速率限制",
                r"您当前使用该api的(?:并发|频率)数?过高",
            ),
        ),
        "moonshot": (
            *_rows(_OPEN, R.NO_BALANCE, r"your account [\w\-<>{} ]{0,60}?(?:is suspended|is not active)"),
            *_rows(
                _TOO_LONG,
                R.CONTEXT_TOO_LONG,
                r"invalid request: your request exceeded model token limit",
                r"your request exceeded model token limit",
            ),
            *_rows(
                _OPEN, R.CONTENT_FILTERED, r"the request was rejected because it was considered high risk"
            ),
            *_rows(_GONE, R.MODEL_NOT_FOUND, r"not found the model "),
        ),
        "dashscope": (
            *_rows(
                _OPEN,
                R.NO_BALANCE,
                r"access denied, please make sure your account is in good standing",
                r"the free (?:tier|quota|allocated quota) (?:of the model )?(?:has been )?exhausted",
                r"free allocated quota exceeded",
            ),
            *_rows(
                _TOO_LONG,
                R.CONTEXT_TOO_LONG,
                r"range of input length should be ",
                r"<?\d{0,4}>? ?internalerror\.algo\.invalidparameter: range of input length should be ",
            ),
            *_rows(
                _OPEN,
                R.CONTENT_FILTERED,
                r"(?:input|output) (?:text )?data may contain inappropriate content",
            ),
            *_rows(
                _LIMITS,
                R.RATE_LIMITED,
                r"requests rate limit exceeded",
                r"you have exceeded your current request(?:s)? limit",
                r"allocated quota exceeded",
            ),
        ),
        "mistral": (
            *_rows(_LIMITS, R.MODEL_RATE_LIMITED, r"service tier capacity exceeded for this model"),
            *_rows(_TOO_LONG, R.CONTEXT_TOO_LONG, r"prompt contains \d+ tokens"),
            *_rows(_GONE, R.MODEL_NOT_FOUND, r"invalid model: "),
            *_rows(_OPEN, R.NO_BALANCE, r"you have reached your (?:monthly )?spend(?:ing)? limit"),
        ),
        "vllm": (
            *_rows(
                _TOO_LONG,
                R.CONTEXT_TOO_LONG,
                r"the (?:decoder )?prompt \(?(?:total )?length",
                r"'?max_tokens'? or '?max_completion_tokens'? is too large",
                r"you passed \d+ input (?:tokens|characters)",
            ),
        ),
        "sglang": (
            *_rows(
                _TOO_LONG,
                R.CONTEXT_TOO_LONG,
                r"(?:the )?input(?: length)? \(\d+ tokens\) (?:exceeds|is longer than)",
                r"requested token count exceeds the model's maximum context length",
            ),
            *_rows(_SERVER | {429}, R.MODEL_RATE_LIMITED, r"the request queue is full"),
        ),
        "llama.cpp": (
            *_rows(
                _TOO_LONG,
                R.CONTEXT_TOO_LONG,
                r"the request exceeds the available context size",
                r"request \(\d+ tokens\) exceeds the available context size",
                r"input prompt is too big compared to kv size",
                r"context shift is disabled",
                r"the input is too large to process",
            ),
            *_rows(_SERVER, R.LOADING, r"loading model", r"model is loading", r"slot unavailable"),
            *_rows(_SERVER, R.BAD_REQUEST, r"tools? param(?:eter)? requires --jinja"),
        ),
        "ollama": (
            *_rows(
                _GONE,
                R.MODEL_NOT_FOUND,
                r"model ['\"]?[\w./:\-]{1,120}['\"]? not found",
                r"pull model manifest",
            ),
            *_rows(_SERVER, R.LOADING, r"server busy, please try again"),
            *_rows(_SERVER, R.MODEL_NOT_FOUND, r"model requires more system memory"),
            *_rows(_OPEN, R.BAD_REQUEST, r"[\w./:\-\"]{1,120} does not support (?:tools|chat|thinking)"),
            *_rows(
                _LIMITS | {402},
                R.PLAN_QUOTA,
                r"you(?:'ve| have) reached your (?:hourly|daily|weekly) usage limit",
            ),
        ),
        "one-api": (
            *_rows(
                _OPEN | _SERVER,
                R.NO_BALANCE,
                r"(?:用户|令牌|该令牌|您的|账户)?(?:剩余)?(?:的)?(?:额度|余额)(?:已用尽|不足)",
                r"预扣费额度失败",
                r"user quota is not enough",
                r"token quota (?:is not enough|exhausted|has been exhausted)",
                r"insufficient (?:user )?(?:quota|balance|credits?|funds)",
                r"your (?:balance|quota|credits?) (?:is|are) (?:insufficient|exhausted|not enough)",
                r"you have (?:no|run out of|insufficient) (?:credits?|balance|quota)",
            ),
            *_rows(
                _OPEN,
                R.BAD_CREDENTIALS,
                r"无效的令牌",
                r"(?:该)?令牌(?:状态不可用|已过期|已被禁用|不存在)",
                r"未提供令牌",
                r"invalid token",
            ),
            *_rows(_OPEN, R.ACCOUNT_BLOCKED, r"用户已被封禁", r"user (?:has been|is) banned"),
            *_rows(
                _LIMITS,
                R.MODEL_RATE_LIMITED,
                r"当前分组上游负载已饱和",
                r"the upstream load of the current group is saturated",
            ),
            *_rows(_LIMITS, R.RATE_LIMITED, r"您已达到(?:总)?请求数限制", r"请求过于频繁"),
            *_rows(
                _GONE | {429},
                R.NO_CHANNEL,
                r"(?:当前)?分组 ?.{1,60}? ?下(?:对于)?模型 .{1,120}? ?(?:无可用渠道|的可用渠道不存在)",
                r"no available channels? for (?:model|group) ",
            ),
            *_rows(_OPEN, R.NOT_PERMITTED, r"(?:该)?令牌无权(?:使用|访问)模型", r"unapproved channel"),
        ),
        "plain words": (
            *_rows(
                _OPEN,
                R.NO_BALANCE,
                r"(?:your )?(?:account|organization|workspace) (?:has )?"
                r"(?:insufficient|run out of|no(?: remaining)?)"
                r" (?:balance|credits?|funds)",
                r"(?:insufficient|not enough) (?:balance|credits?|funds|quota)",
                r"payment required",
                r"usage limit (?:reached|exceeded)",
                r"monthly (?:spend|usage) limit (?:reached|exceeded)",
                r"(?:账户|账号)?(?:余额|额度)不足",
                r"欠费",
            ),
            *_rows(
                _LIMITS,
                R.DAILY_QUOTA,
                r"daily (?:request|token|usage)? ?(?:limit|quota) (?:reached|exceeded)",
                r"quota exceeded for quota metric .{1,120} per day",
            ),
            *_rows(
                _LIMITS,
                R.RATE_LIMITED,
                r"too many requests",
                r"(?:requests? )?rate limit(?: has been| was)? (?:reached|exceeded)",
                r"请求(?:过于频繁|太频繁|频率过高)",
            ),
            *_rows(
                _TOO_LONG,
                R.CONTEXT_TOO_LONG,
                r"(?:the )?(?:prompt|input|context|request)(?: length)? (?:is too long|exceeds the "
                r"(?:maximum )?(?:context|model))",
                r"context (?:length|window|size)(?: was| is)? exceeded",
                r"maximum context length (?:is|of|exceeded)",
            ),
            *_rows(
                _GONE,
                R.MODEL_NOT_FOUND,
                r"(?:unknown|invalid) model\b",
                r"model ['\"`]?[\w./:\-]{1,120}['\"`]? (?:does not exist|is not available|was not found)",
            ),
        ),
    }
)
