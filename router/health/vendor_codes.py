"""What vendors' typed codes and bare statuses mean: the first tables behind the error taxonomy. Data only.

A code is decisive where it names its cause; sentences (:mod:`router.health.vendor_patterns`) come after.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from router.health.rulings import RulingName as R

__all__ = ["CODES", "STATUSES"]

# What a status alone says, where neither code nor sentence says more.
STATUSES: Mapping[int, R] = MappingProxyType(
    {
        401: R.BAD_CREDENTIALS,
        402: R.NO_BALANCE,
        403: R.FORBIDDEN,
        404: R.MODEL_NOT_FOUND,
        405: R.MODEL_NOT_FOUND,
        408: R.UPSTREAM_TIMEOUT,
        410: R.MODEL_NOT_FOUND,
        413: R.CONTEXT_TOO_LONG,
        424: R.UPSTREAM_FAILURE,
        425: R.OVERLOADED,
        429: R.RATE_LIMITED,
        451: R.CONTENT_FILTERED,
        498: R.MODEL_RATE_LIMITED,
        499: R.UPSTREAM_FAILURE,
        501: R.BAD_REQUEST,
        503: R.OVERLOADED,
        504: R.UPSTREAM_TIMEOUT,
        524: R.UPSTREAM_TIMEOUT,
        529: R.OVERLOADED,
    }
)

# Typed words (codes, types, RPC statuses, reasons), casefolded. Words that a vendor gives to everything
# ("invalid_request_error", "api_error", "BadRequestError") are not here: they decide nothing.
CODES: Mapping[str, R] = MappingProxyType(
    {
        # OpenAI, Azure and most of those that speak its wire
        "insufficient_quota": R.NO_BALANCE,
        "billing_hard_limit_reached": R.NO_BALANCE,
        "billing_not_active": R.NO_BALANCE,
        "quota_exceeded": R.PLAN_QUOTA,
        "rate_limit_exceeded": R.RATE_LIMITED,
        "rate_limit_error": R.RATE_LIMITED,
        "too_many_requests": R.RATE_LIMITED,
        "invalid_api_key": R.BAD_CREDENTIALS,
        "incorrect_api_key": R.BAD_CREDENTIALS,
        "invalid_authentication": R.BAD_CREDENTIALS,
        "account_deactivated": R.ACCOUNT_BLOCKED,
        "model_not_found": R.MODEL_NOT_FOUND,
        "deploymentnotfound": R.MODEL_NOT_FOUND,
        "context_length_exceeded": R.CONTEXT_TOO_LONG,
        "content_filter": R.CONTENT_FILTERED,
        "content_policy_violation": R.CONTENT_FILTERED,
        "unsupported_country_region_territory": R.REGION_REFUSED,
        "unsupported_parameter": R.BAD_REQUEST,
        "unsupported_value": R.BAD_REQUEST,
        "invalid_function_parameters": R.BAD_REQUEST,
        # Anthropic
        "authentication_error": R.BAD_CREDENTIALS,
        "billing_error": R.NO_BALANCE,
        "permission_error": R.NOT_PERMITTED,
        "not_found_error": R.MODEL_NOT_FOUND,
        "request_too_large": R.CONTEXT_TOO_LONG,
        "overloaded_error": R.OVERLOADED,
        "timeout_error": R.UPSTREAM_TIMEOUT,
        # Google: RPC statuses and reasons
        "api_key_invalid": R.BAD_CREDENTIALS,
        "api_key_expired": R.BAD_CREDENTIALS,
        "unauthenticated": R.BAD_CREDENTIALS,
        "consumer_suspended": R.ACCOUNT_BLOCKED,
        "billing_disabled": R.NO_BALANCE,
        "service_disabled": R.NOT_PERMITTED,
        "permission_denied": R.NOT_PERMITTED,
        "resource_exhausted": R.RATE_LIMITED,
        "unavailable": R.OVERLOADED,
        "deadline_exceeded": R.UPSTREAM_TIMEOUT,
        # Groq, Cerebras
        "model_decommissioned": R.MODEL_NOT_FOUND,
        "model_terms_required": R.NOT_PERMITTED,
        "model_permission_blocked_org": R.NOT_PERMITTED,
        "model_permission_blocked_project": R.NOT_PERMITTED,
        "organization_restricted": R.ACCOUNT_BLOCKED,
        "tool_use_failed": R.MODEL_FAULT,
        "json_validate_failed": R.MODEL_FAULT,
        "wrong_api_key": R.BAD_CREDENTIALS,
        "queue_exceeded": R.MODEL_RATE_LIMITED,
        "request_quota_exceeded": R.RATE_LIMITED,
        "token_quota_exceeded": R.RATE_LIMITED,
        "payment_required_error": R.NO_BALANCE,
        # Moonshot
        "exceeded_current_quota_error": R.NO_BALANCE,
        "rate_limit_reached_error": R.RATE_LIMITED,
        "engine_overloaded_error": R.MODEL_RATE_LIMITED,
        "invalid_authentication_error": R.BAD_CREDENTIALS,
        "incorrect_api_key_error": R.BAD_CREDENTIALS,
        "resource_not_found_error": R.MODEL_NOT_FOUND,
        "permission_denied_error": R.NOT_PERMITTED,
        # DashScope (also with a dotted suffix, which classify cuts off where the whole is not here)
        "arrearage": R.NO_BALANCE,
        "prepaidbilloverdue": R.NO_BALANCE,
        "postpaidbilloverdue": R.NO_BALANCE,
        "commoditynotpurchased": R.NO_BALANCE,
        "allocationquota.freetieronly": R.NO_BALANCE,
        "throttling.allocationquota": R.RATE_LIMITED,
        "throttling": R.RATE_LIMITED,
        "limit_requests": R.RATE_LIMITED,
        "limitrequests": R.RATE_LIMITED,
        "limit_burst_rate": R.RATE_LIMITED,
        "invalidapikey": R.BAD_CREDENTIALS,
        "model.accessdenied": R.NOT_PERMITTED,
        "accessdenied.unpurchased": R.NOT_PERMITTED,
        "accessdenied": R.NOT_PERMITTED,
        "access_denied": R.NOT_PERMITTED,
        "modelnotfound": R.MODEL_NOT_FOUND,
        "model_not_supported": R.MODEL_NOT_FOUND,
        "datainspectionfailed": R.CONTENT_FILTERED,
        "data_inspection_failed": R.CONTENT_FILTERED,
        "requesttimeout": R.UPSTREAM_TIMEOUT,
        "modelunavailable": R.OVERLOADED,
        "modelservingerror": R.UPSTREAM_FAILURE,
        # Z.ai / BigModel
        "1000": R.BAD_CREDENTIALS,
        "1001": R.BAD_CREDENTIALS,
        "1002": R.BAD_CREDENTIALS,
        "1003": R.BAD_CREDENTIALS,
        "1004": R.BAD_CREDENTIALS,
        "1110": R.ACCOUNT_BLOCKED,
        "1111": R.ACCOUNT_BLOCKED,
        "1112": R.ACCOUNT_BLOCKED,
        "1113": R.NO_BALANCE,
        "1121": R.ACCOUNT_BLOCKED,
        "1210": R.BAD_REQUEST,
        "1211": R.MODEL_NOT_FOUND,
        "1212": R.BAD_REQUEST,
        "1213": R.BAD_REQUEST,
        "1214": R.BAD_REQUEST,
        "1215": R.BAD_REQUEST,
        "1220": R.NOT_PERMITTED,
        "1221": R.MODEL_NOT_FOUND,
        "1222": R.MODEL_NOT_FOUND,
        "1230": R.UPSTREAM_FAILURE,
        "1234": R.UPSTREAM_FAILURE,
        "1261": R.CONTEXT_TOO_LONG,
        "1301": R.CONTENT_FILTERED,
        "1302": R.RATE_LIMITED,
        "1303": R.RATE_LIMITED,
        "1304": R.DAILY_QUOTA,
        "1305": R.MODEL_RATE_LIMITED,
        "1308": R.PLAN_QUOTA,
        "1309": R.NO_BALANCE,
        "1310": R.PLAN_QUOTA,
        "1311": R.NOT_PERMITTED,
        "1312": R.MODEL_RATE_LIMITED,
        "1313": R.RATE_LIMITED,
        # ZCode's gate refuses agents that it does not know
        "11128": R.NOT_PERMITTED,
        # MiniMax
        "base_resp:1002": R.RATE_LIMITED,
        "base_resp:1004": R.BAD_CREDENTIALS,
        "base_resp:1008": R.NO_BALANCE,
        "base_resp:1026": R.CONTENT_FILTERED,
        "base_resp:1027": R.CONTENT_FILTERED,
        "base_resp:1039": R.RATE_LIMITED,
        "base_resp:2013": R.BAD_REQUEST,
        "base_resp:2049": R.BAD_CREDENTIALS,
        # Mistral
        "invalid_model": R.MODEL_NOT_FOUND,
        "service_tier_capacity_exceeded": R.MODEL_RATE_LIMITED,
        "context_length_error": R.CONTEXT_TOO_LONG,
        # vLLM, SGLang, llama.cpp, Ollama, our own engine
        "notfounderror": R.MODEL_NOT_FOUND,
        "exceed_context_size_error": R.CONTEXT_TOO_LONG,
        "unavailable_error": R.LOADING,
        "slot_busy": R.LOADING,
        "queue_full": R.LOADING,
        "engine_loading": R.LOADING,
        # one-api, new-api
        "insufficient_user_quota": R.NO_BALANCE,
        "pre_consume_token_quota_failed": R.NO_BALANCE,
        "insufficient_balance": R.NO_BALANCE,
        "insufficient_credits": R.NO_BALANCE,
        "token_quota_exhausted": R.NO_BALANCE,
        "group_load_saturated": R.MODEL_RATE_LIMITED,
        "get_channel_failed": R.NO_CHANNEL,
    }
)
