import { type ArgumentsHost, Catch, HttpException } from '@nestjs/common'
import { BaseExceptionFilter } from '@nestjs/core'
import { httpStatusOf, UniqueTextError } from '../errors'

/**
 * Answers every error of this package with the status of `httpStatusOf`, its code and its message, which never contains
 * a text. Provide it as `{ provide: APP_FILTER, useClass: UniqueTextExceptionFilter }`. If the error is a fault of the
 * program or its database, it is logged, and its message is not sent.
 */
@Catch(UniqueTextError)
export class UniqueTextExceptionFilter extends BaseExceptionFilter {
  /** Sends the answer. Throws the error again if the host is not HTTP. */
  override catch(error: UniqueTextError, host: ArgumentsHost): void {
    const status = httpStatusOf(error)
    // Other hosts, such as GraphQL, have no response to send.
    if (host.getType() !== 'http') throw error
    const isFault = status === undefined || status === 500
    const { code, message } = error
    const answer = (): HttpException =>
      new HttpException({ statusCode: status, code, message }, status ?? 500, { cause: error })
    super.catch(isFault ? error : answer(), host)
  }
}
