/** Passes everything between client and server; each message of the client takes so many milliseconds longer. */
import { type AddressInfo, connect, createServer } from 'node:net'

const [, , serverUrl = '', delay = '0'] = process.argv
const milliseconds = Number(delay)
const { hostname, port } = new URL(serverUrl)

const server = createServer({ noDelay: true }, (client) => {
  const upstream = connect({ host: hostname, port: Number(port), noDelay: true })
  const end = (): void => {
    client.destroy()
    upstream.destroy()
  }
  for (const socket of [client, upstream]) socket.on('error', end).on('close', end)
  // Timers of equal length run in the order in which they were set.
  client.on('data', (data) => setTimeout(() => upstream.write(data), milliseconds))
  upstream.on('data', (data) => client.write(data))
})

server.listen(0, '127.0.0.1', () => {
  const url = new URL(serverUrl)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as AddressInfo).port)
  process.send?.(url.href)
})

process.once('disconnect', () => process.exit())
