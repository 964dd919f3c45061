"""Any module of PyTorch that calls scaled_dot_product_attention: the call is listened to, and its arguments are traced back."""
