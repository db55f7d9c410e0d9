typedef int qr_device_cpu_empty;
