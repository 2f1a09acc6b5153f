import { expect, test } from 'vitest'
import { findServer, type Source, type Sources, type TestServer } from '../../support/postgres'

const server = (origin: string): TestServer => ({ url: 'postgres://', origin, stop: async () => {} })
const none: Source = async () => undefined

const found = async (changed: Partial<Sources>): Promise<{ origin: string; said: string[] }> => {
  const said: string[] = []
  const tried = { environment: none, container: none, embedded: async () => server('embedded'), ...changed }
  const { origin } = await findServer(tried, (line) => said.push(line))
  return { origin, said }
}

test('a Docker engine that cannot start the image gives one line that says why, and the embedded server', async () => {
  const container = () => Promise.reject(new Error('toomanyrequests: rate limit\n    at a stack'))
  expect(await found({ container })).toEqual({
    origin: 'embedded',
    said: [
      'Docker answers, but postgres:18-alpine did not start (toomanyrequests: rate limit). The embedded Postgres is used.',
    ],
  })
})

test('a server that was named is used, and nothing else is tried', async () => {
  const unwanted = () => Promise.reject(new Error('tried'))
  const environment = async () => server('environment')
  expect(await found({ environment, container: unwanted, embedded: unwanted })).toEqual({
    origin: 'environment',
    said: [],
  })
})

test('a container comes before the embedded server', async () => {
  expect(await found({ container: async () => server('container') })).toEqual({ origin: 'container', said: [] })
})

test('an embedded server that does not start is the error', async () => {
  const embedded = () => Promise.reject(new Error('no binaries'))
  await expect(found({ embedded })).rejects.toThrow('no binaries')
})
