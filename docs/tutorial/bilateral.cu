// Bilateral filter: smooths noise and keeps edges. Each pixel becomes the mean of its neighbourhood,
// weighted by nearness in space and in brightness. The image comes with a border of `radius` pixels.
extern "C" __global__ void bilateral(
    double* out, const double* image, int width, int height, int radius) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const int pitch = width + 2 * radius;
    const double* corner = &image[y * pitch + x];
    const double centre = corner[radius * pitch + radius];
    double sum = 0, weights = 0;
    for (int j = 0; j <= 2 * radius; ++j) {
        for (int i = 0; i <= 2 * radius; ++i) {
            const double value = corner[j * pitch + i];
            const double dx = i - radius, dy = j - radius, difference = value - centre;
            const double distance = dx * dx + dy * dy;
            const double weight = exp(-0.08 * distance - 50.0 * difference * difference);
            sum += weight * value;
            weights += weight;
        }
    }
    out[y * width + x] = sum / weights;
}
