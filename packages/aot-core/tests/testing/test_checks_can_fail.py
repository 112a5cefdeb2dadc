"""Every check fails for at least one backend that is wrong in what the check is about."""

from __future__ import annotations

import pytest
import torch
from mutants import *  # noqa: F403

from aot_core.testing import all_checks

CHECKS = {check.name: check for check in all_checks()}

CAUGHT_BY = {
    # autograd
    "training": wrong_gradients,
    "inference": wrong_values,
    "optimizer_loop": freezes_parameters,
    "partially_frozen": wrong_gradients,
    "gradient_through_frozen_model": detaches,
    "unused_output": one_for_no_gradient,
    "unused_output_gives_no_gradient": zero_for_no_gradient,
    "output_without_gradient": needs_gradient_everywhere,
    "gradient_accumulation": overwrites_grad,
    "interleaved_backward": keeps_last_activations,
    "retain_graph": frees_at_once,
    "second_backward_is_an_error": no_second_derivative,
    "double_backward": no_second_derivative,
    "double_backward_is_never_wrong": second_derivative_is_zero,
    "partial_gradients": wrong_gradients,
    "tied_weights": wrong_gradients,
    "sparse_gradients": dense_gradients,
    "custom_autograd_function": wrong_gradients,
    "activation_checkpointing": wrong_gradients,
    "saved_tensor_hooks": wrong_gradients,
    "tensor_hooks": writes_grad_itself,
    "accumulate_grad_hooks": writes_grad_itself,
    "retain_grad": detaches,
    "no_grad_inside": removes_no_grad,
    "function_transforms": wrong_values,
    # mutation
    "batch_norm_statistics": drops_mutations,
    "counter_buffer": drops_mutations,
    "input_data": drops_mutations,
    "input_slice": drops_mutations,
    "input_metadata": drops_mutations,
    "input_data_and_metadata": drops_mutations,
    "input_in_training": drops_mutations,
    "input_under_inference_mode": drops_mutations,
    "parameter_under_no_grad": drops_mutations,
    "mutation_is_seen_by_autograd": writes_behind_autograd,
    "buffer_swap": drops_mutations,
    # aliasing
    "duplicate_inputs": drops_mutations,
    "duplicate_inputs_in_training": wrong_gradients,
    "overlapping_inputs": writes_inputs_back,
    "overlap_changes_between_calls": writes_inputs_back,
    "input_and_its_view": writes_inputs_back,
    "output_is_input": clones_outputs,
    "output_views_input": clones_outputs,
    "output_views_input_in_training": clones_outputs,
    "outputs_alias_each_other": clones_outputs,
    "outputs_alias_in_training": clones_outputs,
    "view_of_intermediate": forbids_writes_to_outputs,
    "copies_stay_copies": removes_noops,
    "outputs_survive_next_call": reuses_output_memory,
    "gradients_survive_next_call": reuses_gradient_memory,
    "constants_are_fresh": folds_constants,
    # layout
    "noncontiguous_input": reads_in_memory_order,
    "storage_offset": ignores_storage_offset,
    "expanded_input": reads_in_memory_order,
    "strides_change_between_calls": reads_in_memory_order,
    "output_strides": contiguous_outputs,
    "channels_last": contiguous_outputs,
    # dtypes
    "float64": computes_in(torch.float32, torch.float64),
    "float32": computes_in(torch.bfloat16, torch.float32),
    "float16": computes_in(torch.bfloat16, torch.float16),
    "bfloat16": computes_in(torch.float8_e4m3fn, torch.bfloat16),
    "complex64": conjugate_gradients,
    "integers": integers_through_float,
    "integer_overflow": saturating_integers,
    "booleans": bool_as_uint8,
    "special_values": no_special_values,
    "type_promotion": everything_in_float32,
    # autocast
    "autocast_training": without_autocast,
    "autocast_forward_only": without_autocast,
    "autocast_inside_model": removes_autocast_regions,
    "autocast_changes_between_calls": without_autocast,
    "autocast_backward_outside": backward_under_forward_autocast,
    "autocast_backward_inside": backward_under_forward_autocast,
    "autocast_around_both": backward_without_autocast,
    "autocast_backward_changes_between_calls": backward_under_forward_autocast,
    # shapes
    "changing_batch_size": truncates_to_first_size,
    "dynamic_batch_size": truncates_to_first_size,
    "sizes_as_values": freezes_numbers,
    "dynamic_mutation": drops_mutations,
    "zero_size": refuses_empty,
    "zero_dimensional": at_least_one_dimension,
    "broadcast_changes_between_calls": wrong_gradients,
    "python_numbers": freezes_numbers,
    "padding_and_reduction": wrong_values,
    # structure
    "container_inputs": reverses_inputs,
    "container_outputs": reverses_outputs,
    "keyword_arguments": reverses_inputs,
    "none_and_number_outputs": reverses_outputs,
    "none_gradient": reverses_outputs,
    "closure_variables": freezes_tensors,
    "many_inputs": reverses_inputs,
    "fullgraph": wrong_gradients,
    "graph_break": freezes_tensors,
    "uncompiled_part": wrong_gradients,
    "cond": takes_first_branch,
    "cond_in_training": takes_first_branch,
    "while_loop": loops_once,
    # randomness
    "dropout_repeats_from_seed": draws_while_compiling,
    "dropout_is_fresh": reuses_random_numbers,
    "dropout_gradient": recomputes_with_other_numbers,
    "checkpointed_dropout": recomputes_with_other_numbers,
    "dropout_off_in_eval": first_graph_for_all,
    "random_tensors": reuses_random_numbers,
    "generator_untouched": draws_before_running,
    "generator_advances": leaves_generator_behind,
    "eager_random_numbers": draws_before_running,
    "eager_generator_state": draws_before_running,
    # modules
    "train_eval_switch": drops_mutations,
    "replaced_submodule": first_graph_for_all,
    "replaced_parameter": freezes_parameters,
    "changed_attribute": first_graph_for_all,
    "changed_dtype": computes_in(torch.float32, torch.float64),
    "changed_requires_grad": freezes_parameters,
    "state_dict": freezes_parameters,
    "deepcopy": HoldsALock,
    "nested_compilation": wrong_gradients,
    "compiled_parts": keeps_last_activations,
    "two_models_alternate": first_graph_for_all,
    "module_hooks": wrong_values,
    "backward_module_hooks": wrong_gradients,
    # runtime
    "inference_mode": not_inference,
    "grad_mode_changes_between_calls": not_inference,
    "global_state_untouched": changes_global_state,
    "error_in_model": wrong_values,
    "error_in_operation": swallows_errors,
    "error_in_backward": breaks_after_error,
    "inputs_released": keeps_inputs,
    "activations_released": keeps_outputs,
    "model_released": keeps_inputs,
    "threads_share_a_model": mixes_up_threads,
    "threads_share_a_backend": mixes_up_threads,
    "reentrant_call": keeps_last_activations,
    "compiles_again_after_reset": drops_mutations,
}

# These make a backend with state of its own.
FACTORIES = (
    HoldsALock,
    breaks_after_error,
    first_graph_for_all,
    freezes_parameters,
    freezes_numbers,
    freezes_tensors,
    keeps_inputs,
    keeps_last_activations,
    keeps_outputs,
    mixes_up_threads,
    reuses_gradient_memory,
)


def test_every_check_has_a_mutant():
    assert CAUGHT_BY.keys() == CHECKS.keys()


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_check_catches_mutant(name):
    mutant = CAUGHT_BY[name]
    backend = mutant() if mutant in FACTORIES else mutant
    with pytest.raises(Exception) as caught:  # noqa: PT011 - an error of the backend is a failed check too
        CHECKS[name].run(backend)
    print(caught.value)
