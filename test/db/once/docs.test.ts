import { readFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { formatWithOptions } from 'node:util'
import { runInThisContext } from 'node:vm'
import { Body, Controller, type INestApplication, Module, Post } from '@nestjs/common'
import { APP_FILTER, NestFactory } from '@nestjs/core'
import express from 'express'
import { DataSource } from 'typeorm'
import { ModuleKind, ScriptTarget, transpileModule } from 'typescript'
import { expect, test } from 'vitest'
import { Idempotent, IdempotentManager, IdempotentModule, UniqueTextExceptionFilter } from '../../../src/nest'
import { idempotent, once, OnceToken, tokenOf } from '../../../src/once'
import { printedBy } from '../../package/readme'
import { useDatabase } from '../../support/database'
import { Payment } from '../../support/entities'

const db = useDatabase()
const dataSource = db.useDataSource([Payment, OnceToken])

const document = await readFile(path.resolve(import.meta.dirname, '../../../docs/once.md'), 'utf8')
const EXECUTED = /^<!-- executed: (?<name>\w+) -->\n\s*^```ts\n(?<text>.*?)^```$/gmsu
const blocks = Object.fromEntries(
  [...document.matchAll(EXECUTED)].map(({ groups = {} }) => [groups['name'], groups['text'] ?? '']),
)

/** Runs a block, and returns what it declares under a name. */
async function run(block: string, names: object, declared = 'undefined'): Promise<unknown> {
  const source = `(async ({ ${Object.keys(names).join(', ')} }) => {\n${block}\nreturn ${declared} })`
  const { outputText } = transpileModule(source, {
    compilerOptions: { experimentalDecorators: true, module: ModuleKind.None, target: ScriptTarget.ES2022 },
  })
  return await (runInThisContext(outputText) as (given: object) => Promise<unknown>)(names)
}

test.each(['running', 'failures'])('docs/once.md: the block "%s" prints what it says', async (name) => {
  const text = blocks[name] ?? ''
  const printed: string[] = []
  const console = { log: (...values: unknown[]) => printed.push(formatWithOptions({ colors: false }, ...values)) }
  await run(text, { dataSource, Payment, once, tokenOf, console })
  expect(printed.join('\n')).toBe(printedBy(text))
})

const withUser = (request: object, _: unknown, next: () => void): void => {
  Object.assign(request, { user: { id: 'ada' } })
  next()
}

async function expectPaidOnce(url: string): Promise<void> {
  const statuses: (string | null | number)[][] = []
  for (const headers of [{ 'idempotency-key': 'key' }, { 'idempotency-key': 'key' }, {}]) {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', connection: 'close', ...headers },
      body: '{ "token": "order 7" }',
    })
    statuses.push([response.status, response.headers.get('idempotent-replayed')])
  }
  expect(statuses).toEqual([
    [201, null],
    [201, 'true'],
    [400, null],
  ])
  expect(await dataSource.manager.countBy(Payment, { token: 'order 7' })).toBe(1)
}

test('docs/once.md: the handler of the block "http" pays once', async () => {
  const app = express().use(express.json(), withUser)
  await run(blocks['http'] ?? '', { dataSource, Payment, app, idempotent })
  const server = app.listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  await expectPaidOnce(`http://127.0.0.1:${(server.address() as AddressInfo).port}/payments`)
  await new Promise((resolve) => server.close(resolve))
})

test('docs/once.md: the application of the block "nest" pays once', async () => {
  const module = { module: Object, global: true, exports: [DataSource] }
  const TypeOrmModule = {
    forRoot: () => ({ ...module, providers: [{ provide: DataSource, useValue: dataSource }] }),
  }
  const nest = { Body, Controller, Module, Post, APP_FILTER, TypeOrmModule, options: {} }
  const ours = { Idempotent, IdempotentManager, IdempotentModule, UniqueTextExceptionFilter }
  const AppModule = await run(blocks['nest'] ?? '', { Payment, ...nest, ...ours }, 'AppModule')
  const app: INestApplication = await NestFactory.create(AppModule as typeof Object, { logger: false })
  app.use(withUser)
  await app.listen(0, '127.0.0.1')
  await expectPaidOnce(`${await app.getUrl()}/payments`)
  await app.close()
})

test('docs/once.md has these blocks', () => {
  expect(Object.keys(blocks)).toEqual(['running', 'failures', 'http', 'nest'])
})
