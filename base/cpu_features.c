typedef int qr_cpu_features_empty;
