/**
 * Servers whose route `POST /payments` pays once for each key of a client. As a program, `node --import tsx
 * http-servers.ts URL` starts that of Express and prints its address.
 */
import 'reflect-metadata'
import type { AddressInfo } from 'node:net'
import express from 'express'
import { Controller, HttpException, Module, Post, Req, Res } from '@nestjs/common'
import { type AbstractHttpAdapter, APP_FILTER, NestFactory } from '@nestjs/core'
import { ExpressAdapter } from '@nestjs/platform-express'
import { FastifyAdapter } from '@nestjs/platform-fastify'
import fastify, { type FastifyError } from 'fastify'
import { DataSource, type EntityManager } from 'typeorm'
import { DeclarationError, httpStatusOf, TextRejectedError } from '../../src/errors'
import {
  type HttpAnswer,
  type HttpRequest,
  type HttpResponse,
  idempotent,
  type IdempotentOptions,
  OnceFailedError,
  OnceToken,
  TokenReusedError,
} from '../../src/once'
import { withUniqueText } from '../../src'
import { Idempotent, IdempotentManager, IdempotentModule, UniqueTextExceptionFilter } from '../../src/nest'
import { Payment } from './entities'

export interface Server {
  readonly url: string
  readonly close: () => Promise<unknown>
}

type Options = Partial<IdempotentOptions<HttpRequest>>

/** Work waits for this advisory lock, so that a test can hold it. */
export const GATE = 7

async function pay(manager: EntityManager, { body }: HttpRequest): Promise<HttpAnswer> {
  const { token, status = 201 } = body as { token: string; status?: number }
  await manager.query('select pg_advisory_xact_lock_shared($1)', [GATE])
  if (token === 'broken') throw new Error('broken')
  if (token === 'reused') throw new TokenReusedError()
  if (token === 'failed inside') throw new OnceFailedError(null)
  await manager.insert(Payment, { token })
  if (status === 204) return { status }
  if (token === 'a date') return { status, body: new Date() }
  return { status, body: { token } }
}

const client = ({ headers }: HttpRequest): string => String(headers['x-client'] ?? 'nobody')

export async function expressServer(dataSource: DataSource, options: Options = {}): Promise<Server> {
  const app = express()
  app.use(express.json())
  app.post('/payments', idempotent(dataSource, { client, ...options }, pay))
  app.use((error: unknown, _: express.Request, response: express.Response, _next: express.NextFunction) => {
    response.status(httpStatusOf(error) ?? 500).json({ code: 'OF_THE_FRAMEWORK' })
  })
  const server = app.listen(0)
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as AddressInfo
  const close = async (): Promise<unknown> => await new Promise((resolve) => server.close(resolve))
  return { url: `http://127.0.0.1:${port}/payments`, close }
}

export async function fastifyServer(dataSource: DataSource, options: Options = {}): Promise<Server> {
  const app = fastify()
  app.post('/payments', idempotent(dataSource, { client, ...options }, pay))
  app.setErrorHandler<FastifyError>(async (error, _, reply) => {
    await reply.status(httpStatusOf(error) ?? error.statusCode ?? 500).send({ code: 'OF_THE_FRAMEWORK' })
  })
  const address = await app.listen({ port: 0, host: '127.0.0.1' })
  return { url: `${address}/payments`, close: async () => await app.close() }
}

async function nestServer(adapter: AbstractHttpAdapter, dataSource: DataSource, options: Options): Promise<Server> {
  @Controller('payments')
  class Payments {
    @Post()
    @Idempotent(options)
    async pay(
      @IdempotentManager() manager: EntityManager,
      @Req() request: HttpRequest,
      @Res({ passthrough: true }) response: HttpResponse,
    ): Promise<unknown> {
      const { status = 201, body } = await pay(manager, request)
      response.status(status)
      return body
    }

    @Post('declined')
    @Idempotent({ keepFailures: true })
    async decline(@IdempotentManager() manager: EntityManager, @Req() request: HttpRequest): Promise<never> {
      await pay(manager, request)
      throw new HttpException({ reason: 'card declined' }, 402)
    }

    @Post('taken')
    refuse(@Req() { headers }: HttpRequest): never {
      throw headers['x-client'] === 'fault'
        ? new DeclarationError('of the program')
        : new TextRejectedError({ property: 'token', reason: 'it is empty' })
    }

    @Post('sent')
    @Idempotent()
    async send(
      @IdempotentManager() manager: EntityManager,
      @Req() request: HttpRequest,
      @Res() response: HttpResponse,
    ): Promise<void> {
      await pay(manager, request)
      response.status(201)
      response.send('{}')
    }
  }
  const database = { provide: DataSource, useValue: dataSource }
  @Module({
    imports: [
      { module: Object, global: true, providers: [database], exports: [DataSource] },
      IdempotentModule.forRoot({ client }),
    ],
    controllers: [Payments],
    providers: [{ provide: APP_FILTER, useClass: UniqueTextExceptionFilter }],
  })
  class App {
    readonly name = 'app'
  }
  const app = await NestFactory.create(App, adapter, { logger: false })
  await app.listen(0, '127.0.0.1')
  return { url: `${await app.getUrl()}/payments`, close: async () => await app.close() }
}

export const nestOnExpress = async (dataSource: DataSource, options: Options = {}): Promise<Server> =>
  await nestServer(new ExpressAdapter(), dataSource, options)

export const nestOnFastify = async (dataSource: DataSource, options: Options = {}): Promise<Server> =>
  await nestServer(new FastifyAdapter(), dataSource, options)

if (require.main === module) {
  const dataSource = withUniqueText(
    new DataSource({ type: 'postgres', url: process.argv[2] ?? '', entities: [Payment, OnceToken] }),
  )
  const start = async (): Promise<void> => {
    await dataSource.initialize()
    process.stdout.write((await expressServer(dataSource)).url)
  }
  void start()
}
