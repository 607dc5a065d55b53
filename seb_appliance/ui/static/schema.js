// The page at /schema: show the OpenAPI document of this appliance, asking no other server.
"use strict";

window.addEventListener("load", () => {
  SwaggerUIBundle({
    url: "schema/openapi.json",
    dom_id: "#schema",
    deepLinking: true,
    validatorUrl: null,
    displayRequestDuration: true,
    persistAuthorization: false,
  });
});
