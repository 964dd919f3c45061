"""What a config.json leaves out: the defaults of its family; and families that the law does not cover, and why."""

from typing import Any

LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
}
QWEN = {"vocab_size": 151936, "intermediate_size": 22016, "use_sliding_window": False}
QWEN |= {"sliding_window": 4096, "max_window_layers": 28}
GEMMA = LLAMA | {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
BERT = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "vocab_size": 50257,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
    },
    "gpt_neox": {
        "vocab_size": 50432,
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_hidden_layers": 44,
        "num_attention_heads": 64,
        "hidden_act": "gelu",
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "partial_rotary_factor": 0.25,
    },
    "llama": LLAMA,
    "mistral": LLAMA | {"intermediate_size": 14336, "num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": LLAMA | QWEN,
    "phi3": LLAMA | {"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "rms_norm_eps": 1e-5},
    "qwen3": LLAMA | QWEN | {"head_dim": 128},
    "olmo2": LLAMA | {"vocab_size": 50304, "rms_norm_eps": 1e-5},
    "gemma2": GEMMA | {"attn_logit_softcapping": 50.0, "layer_types": 2},
    "gemma3_text": GEMMA | {"vocab_size": 262208, "layer_types": 6, "rope_theta": 1e6, "rope_local_base_freq": 10000.0},
    "bert": BERT | {"pad_token_id": 0},
    "vit": BERT,
}
NOT_COVERED = {
    "gemma3": "images; give the text_config, of model_type gemma3_text",
    "mixtral": "experts",
    "qwen2_moe": "experts",
    "qwen3_moe": "experts",
    "gpt_oss": "experts",
    "deepseek_v3": "experts",
    "mamba": "recurrent blocks",
    "jamba": "recurrent blocks and experts",
    "recurrent_gemma": "recurrent blocks",
}
