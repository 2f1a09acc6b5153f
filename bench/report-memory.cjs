// Preloaded into the measured process: says its peak on the way out.
process.on('exit', () => process.stderr.write(`maxrss=${process.resourceUsage().maxRSS}\n`))
