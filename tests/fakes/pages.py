"""Pages of /metrics as llama.cpp and vLLM (with two ranks) write them."""

LLAMA = b"""# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 41
llamacpp:tokens_predicted_total 12
llamacpp:n_decode_total 15
llamacpp:n_busy_slots_per_decode 1.25
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 3
llamacpp:requests_deferred 2
"""
VLLM = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/m"} 4.0
vllm:num_requests_running{engine="1",model_name="org/m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="org/m"} 2.0
vllm:num_requests_waiting{engine="1",model_name="org/m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="org/m"} 0.75
vllm:prefix_cache_queries_total{engine="0",model_name="org/m"} 100.0
vllm:prefix_cache_queries_created{engine="0",model_name="org/m"} 1.756e+09
vllm:prefix_cache_hits_total{engine="0",model_name="org/m"} 60.0
vllm:num_preemptions_total{engine="0",model_name="org/m"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="org/m"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="org/m"} 11.0
vllm:prompt_tokens_created{engine="0",model_name="org/m"} 1.756e+09
vllm:generation_tokens_total{engine="0",model_name="org/m"} 1.5e+02
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="org/m"} 7.0
vllm:iteration_tokens_total_count{engine="0",model_name="org/m"} 9.0
vllm:iteration_tokens_total_sum{engine="0",model_name="org/m"} 250.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="org/m"} 1.5
vllm:time_to_first_token_seconds_sum{engine="1",model_name="org/m"} 0.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="org/m"} 3.0
vllm:time_to_first_token_seconds_count{engine="1",model_name="org/m"} 1.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="org/m"} 2.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="org/m"} 100.0
"""
