import {
  type CallHandler,
  createParamDecorator,
  type DynamicModule,
  type ExecutionContext,
  HttpException,
  Inject,
  type InjectionToken,
  Module,
  type NestInterceptor,
  UseInterceptors,
} from '@nestjs/common'
import { from, lastValueFrom, type Observable } from 'rxjs'
import { DataSource, type EntityManager } from 'typeorm'
import { DeclarationError } from '../errors'
import { RULE } from '../options'
import {
  checkIdempotent,
  type HttpRequest,
  type IdempotentOptions,
  type KeptFailure,
  replyTo,
} from '../once/idempotent'

/** Options of `IdempotentModule.forRoot`; `@Idempotent` changes them for a route. */
// eslint-disable-next-line typescript/no-explicit-any -- requests are those of Express or of Fastify, with what guards add
export interface IdempotentModuleOptions<Request = any> extends IdempotentOptions<Request> {
  /**
   * Whether the handler's `HttpException` below 500 is kept as the answer. The writes of the handler are undone.
   *
   * @default false: the next request runs the handler again
   */
  readonly keepFailures?: boolean
}

interface Settings {
  readonly dataSource: DataSource
  readonly options: IdempotentModuleOptions
}

const SETTINGS = Symbol('typeorm-unique-text.IdempotentModule')

/** Provides the options of `@Idempotent` to every module of an application. */
@Module({})
export class IdempotentModule {
  /**
   * @param dataSource the injection token of the DataSource. With `TypeOrmModule.forRoot` it is the class, the default
   * @example
   * IdempotentModule.forRoot({ client: (request) => request.user.id })
   */
  static forRoot(options: IdempotentModuleOptions, dataSource: InjectionToken = DataSource): DynamicModule {
    const useFactory = (source: DataSource): Settings => ({ dataSource: source, options })
    return {
      module: IdempotentModule,
      global: true,
      providers: [{ provide: SETTINGS, useFactory, inject: [dataSource] }],
      exports: [SETTINGS],
    }
  }
}

/** The manager of the transaction in which the handler of a request runs. */
const managers = new WeakMap<object, EntityManager>()

/**
 * Runs the handler of a route once for each `Idempotency-Key` of a client, in a transaction. Copies of the request get
 * the stored answer with its status and `idempotent-replayed: true`. A request without a key gets 400. While the
 * handler runs, a copy gets 409. Another request under the same key gets 422.
 *
 * The handler must write with the manager of {@link IdempotentManager}, and return a value that JSON can represent.
 *
 * @param changed the options that differ from those of `IdempotentModule.forRoot`
 * @throws DeclarationError when the application starts
 * @example
 * @Post()
 * @Idempotent({ patience: '5 seconds' })
 * async pay(@IdempotentManager() manager: EntityManager, @Body() body: PaymentDto) {
 *   return { id: (await insertOrFail(manager, Payment, body)).id }
 * }
 */
export function Idempotent(changed: Partial<IdempotentModuleOptions> = {}): MethodDecorator & ClassDecorator {
  class IdempotentInterceptor implements NestInterceptor {
    private readonly settings: Settings

    constructor(@Inject(SETTINGS) { dataSource, options }: Settings) {
      this.settings = { dataSource, options: { ...options, ...changed } }
      checkIdempotent(this.settings.options, { keepFailures: RULE.boolean })
    }

    intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
      return from(answerTo(this.settings, context, next))
    }
  }
  return UseInterceptors(IdempotentInterceptor)
}

/** The manager for the writes of an `@Idempotent` handler. Its writes are committed with the answer. */
export const IdempotentManager: () => ParameterDecorator = createParamDecorator((_, context: ExecutionContext) => {
  const manager = managers.get(context.switchToHttp().getRequest<object>())
  if (manager) return manager
  throw new DeclarationError('@IdempotentManager: the route is not @Idempotent.')
})

/** The parts of a response that are used here. Responses of Express and replies of Fastify have them. */
interface NestResponse {
  readonly statusCode: number
  /** Set by Express. */
  readonly headersSent?: boolean
  /** Set by Fastify. */
  readonly sent?: boolean
  status(code: number): unknown
  header(name: string, value: string): unknown
}

async function answerTo(
  { dataSource, options: { keepFailures = false, ...options } }: Settings,
  context: ExecutionContext,
  next: CallHandler,
): Promise<unknown> {
  const http = context.switchToHttp()
  const [request, response] = [http.getRequest<HttpRequest>(), http.getResponse<NestResponse>()]
  const failureOf = (error: unknown): KeptFailure | undefined => {
    if (!(error instanceof HttpException) || error.getStatus() >= 500) return undefined
    return { status: error.getStatus(), body: error.getResponse() }
  }
  const kept = keepFailures ? { keepFailures: failureOf } : {}
  const handle = async (manager: EntityManager): Promise<unknown> => {
    managers.set(request, manager)
    const body: unknown = await lastValueFrom(next.handle(), { defaultValue: undefined })
    if (response.headersSent === true || response.sent === true)
      throw new DeclarationError('@Idempotent: the handler has sent its response itself. Return what is to be sent.')
    return { status: response.statusCode, body }
  }
  const { status, body, headers, isFailure } = await replyTo(dataSource, request, { ...options, ...kept }, handle)
  for (const [name, value] of Object.entries(headers)) response.header(name, value)
  if (isFailure) throw new HttpException(body as string | object, status)
  response.status(status)
  return body
}
