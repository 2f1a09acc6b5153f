import { removeExpiredTokens } from 'typeorm-unique-text/once'
import { buildApp } from './app.js'
import dataSource from './data-source.js'

const HOUR = 3_600_000

await dataSource.initialize()
const app = buildApp(dataSource)
// Requests that have begun get their answers, and then the pool closes.
app.addHook('onClose', async () => await dataSource.destroy())
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void app.close())

const removing = setInterval(() => {
  removeExpiredTokens(dataSource.manager).catch((error: unknown) => app.log.error(error))
}, HOUR)
app.addHook('preClose', async () => clearInterval(removing))
await app.listen({ host: '0.0.0.0', port: Number(process.env.PORT ?? 3000) })
